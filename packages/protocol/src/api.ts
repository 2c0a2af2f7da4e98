/**
 * What the server's own API (`/v1`) and its client say to each other, as JSON. Times are RFC 3339 texts, sizes are
 * bytes, durations milliseconds, binary is base64. An error is the JSON of a `HoldfastError` with its HTTP status.
 */
import type { CommandEnding, SandboxEnding } from "./causes.js";
import type { HoldfastError } from "./errors.js";
import type { CommandLimits, SandboxLimits } from "./limits.js";
import type { HostPressure, SandboxPressure } from "./pressure.js";

/** What an error is on the wire. */
export type ErrorBody = ReturnType<HoldfastError["toJSON"]>;

/** The last line of a stream of lines that could not go on: the status had been sent before it failed. */
export interface ErrorLine {
  readonly type: "error";
  readonly error: ErrorBody;
}

export const SANDBOX_STATUSES = ["creating", "running", "paused", "ended"] as const;
export type SandboxStatus = (typeof SANDBOX_STATUSES)[number];

/** How long a sandbox may live at most: a month. */
export const MAX_TIMEOUT_MS = 30 * 24 * 3600 * 1000;

export interface CreateSandboxBody {
  /** The name of a template; `base` if absent. */
  readonly template?: string;
  /** An image instead of a template: its name, digest or id. */
  readonly image?: string;
  /** With an image: whatever would differ from what is asked for here is an error instead of a report. */
  readonly strict?: boolean;
  readonly limits?: { readonly [K in Exclude<keyof SandboxLimits, "wallMs">]?: number };
  readonly env?: Readonly<Record<string, string>>;
  readonly metadata?: Readonly<Record<string, string>>;
  /** How long it lives, counted anew by `timeout` and by `resume`. Default 300,000. */
  readonly timeoutMs?: number;
  /** At the end of its time: `kill` (default), `pause` with its memory, `stop` (keep the files only). */
  readonly onTimeout?: "kill" | "pause" | "stop";
  /** A paused sandbox is resumed by a request to it. */
  readonly autoResume?: boolean;
  /** How long it may wait for room on the host; 0 fails at once. Default: the server's `waitForRoomSeconds`. */
  readonly waitMs?: number;
}

/** Memory that was asked for, and what it came to. */
export interface MemoryReport {
  readonly requestedBytes: number | null;
  readonly effectiveBytes: number;
  /** What the image has to have; null if it has no floor. */
  readonly floorBytes: number | null;
  /** Null if it is what was asked for. */
  readonly reason: string | null;
}

export interface SandboxInfo {
  readonly id: string;
  /** The template it was made from, or the image as it was named. */
  readonly template: string;
  /** The image's id; null for a template that is none. */
  readonly image: string | null;
  readonly memory: MemoryReport;
  readonly status: SandboxStatus;
  readonly createdAt: string;
  /** When its time is up; null once it has ended. */
  readonly expiresAt: string | null;
  /** As they were asked for. A memory limit with a ceiling moves by itself: what it is now is in the usage. */
  readonly limits: Omit<SandboxLimits, "wallMs">;
  readonly metadata: Readonly<Record<string, string>>;
  readonly onTimeout: "kill" | "pause" | "stop";
  readonly autoResume: boolean;
  /** For a paused one: whether its processes are kept too. */
  readonly memoryKept: boolean | null;
  /** Counts its boots: 1, and one more for each resume from files only. */
  readonly boots: number;
  readonly ending: SandboxEnding | null;
  readonly endedAt: string | null;
  /** Null unless it runs. */
  readonly pressure: SandboxPressure | null;
}

export interface SandboxList {
  readonly sandboxes: readonly SandboxInfo[];
  /** Pass it as `cursor` to get the next page; null on the last one. */
  readonly nextCursor: string | null;
}

export interface SandboxUsage {
  readonly at: string;
  readonly memoryBytes: number;
  readonly memoryPeakBytes: number | null;
  readonly memoryLimitBytes: number;
  /** How far the limit may grow by itself; the limit itself if it does not. */
  readonly memoryCeilingBytes: number;
  readonly pids: number;
  readonly pidsLimit: number;
  readonly cpuMs: number;
  /** Share of one CPU since the last look, in thousandths; null at the first. */
  readonly cpuMillis: number | null;
  readonly cpuLimitMillis: number;
  readonly diskBytes: number | null;
  readonly diskLimitBytes: number;
}

export interface StartCommandBody {
  readonly argv: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly user?: string;
  readonly stdin?: "open" | "closed";
  readonly pty?: { readonly columns: number; readonly rows: number };
  readonly limits?: CommandLimits;
  readonly graceMs?: number;
  readonly tag?: string;
  /** `block` (default): a slow reader slows the command. `drop`: it loses bytes, and is told which. */
  readonly whenReaderIsSlow?: "block" | "drop";
}

export interface CommandInfo {
  readonly id: number;
  readonly pid: number;
  readonly argv: readonly string[];
  readonly cwd: string | null;
  readonly user: string | null;
  readonly tag: string | null;
  readonly pty: boolean;
  readonly startedAt: string;
  readonly endedAt: string | null;
  /** Null while it runs. */
  readonly ending: CommandEnding | null;
}

export interface CommandList {
  /** Newest first. */
  readonly commands: readonly CommandInfo[];
}

/** One line each of the NDJSON that an output stream is. The last line is `ended` or `error`, or the stream was cut. */
export type OutputLine =
  | { readonly type: "started"; readonly command: CommandInfo }
  | { readonly type: "data"; readonly stream: "stdout" | "stderr"; readonly offset: number; readonly base64: string }
  | { readonly type: "gap"; readonly stream: "stdout" | "stderr"; readonly offset: number; readonly length: number }
  | { readonly type: "keepalive" }
  | { readonly type: "ended"; readonly ending: CommandEnding }
  | ErrorLine;

export interface FileInfo {
  readonly name: string;
  readonly path: string;
  readonly type: "file" | "directory" | "symlink" | "other";
  readonly sizeBytes: number;
  readonly mode: number;
  readonly owner: string;
  readonly group: string;
  readonly uid: number;
  readonly gid: number;
  readonly modifiedAt: string;
  readonly linkTarget: string | null;
}

export interface MakeDirectoryBody {
  readonly path: string;
  readonly user?: string;
  readonly mode?: number;
  /** Makes the directories above it too, and is content if it is there already. Default true. */
  readonly parents?: boolean;
}

export interface MoveFileBody {
  readonly from: string;
  readonly to: string;
  readonly user?: string;
}

export const FILE_EVENT_KINDS = ["create", "write", "remove", "rename", "chmod", "overflow"] as const;

/** Something that happened below a watched directory. After `overflow`, look again: some events were lost. */
export interface FileEvent {
  readonly kind: (typeof FILE_EVENT_KINDS)[number];
  /** Relative to the watched directory. */
  readonly name: string;
}

/** One line each of a watch: `ready` first, when nothing will be missed any more. */
export type WatchLine =
  | { readonly type: "ready" }
  | ({ readonly type: "event" } & FileEvent)
  | { readonly type: "keepalive" }
  | ErrorLine;

export const EVENT_KINDS = [
  "waiting_for_memory",
  "waiting_for_pids",
  "waiting_for_disk",
  "created",
  "paused",
  "resumed",
  "timeout_changed",
  "resized",
  "memory_held",
  "memory_grown",
  "memory_shrunk",
  "memory_let_go",
  "network_changed",
  "adopted",
  "snapshotted",
  "pressure",
  "pid_pressure",
  "cleaned_up",
  "frozen",
  "thawed",
  "command_started",
  "command_ended",
  "ending",
  "ended",
] as const;
export type EventKind = (typeof EVENT_KINDS)[number];

/** Something that happened to a sandbox. `seq` grows and is the cursor: ask for what came after it. */
export interface SandboxEvent {
  readonly seq: number;
  readonly at: string;
  readonly sandboxId: string;
  readonly kind: EventKind;
  /** For a person. */
  readonly message: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** A page of events, for those who do not follow them. */
export interface EventList {
  readonly events: readonly SandboxEvent[];
  /** Pass it as `after` to get the next page; null if there is no more for now. */
  readonly nextAfter: number | null;
}

export interface ProcessRow {
  /** As seen inside; null if it is the sandbox's own on the host. */
  readonly pid: number | null;
  readonly hostPid: number;
  readonly state: string;
  readonly name: string;
  readonly commandLine: string;
  readonly rssBytes: number;
  /** The command it belongs to; null for the guest's own. */
  readonly commandId: number | null;
}

export interface Postmortem {
  readonly sandbox: SandboxInfo;
  readonly ending: SandboxEnding;
  /** The processes as they were when the end began. */
  readonly processes: readonly ProcessRow[];
  readonly counters: Readonly<Record<string, number | null>>;
  readonly commands: readonly (CommandInfo & {
    /** The last of its output; base64. */
    readonly stdoutTail: string;
    readonly stderrTail: string;
  })[];
  readonly events: readonly SandboxEvent[];
}

export interface HostInfo {
  readonly version: string;
  readonly memory: {
    /** The whole: all that this process may use, the reserve included. */
    readonly totalBytes: number;
    /** Kept for the host and for ourselves. */
    readonly reserveBytes: number;
    /**
     * What can be promised if nobody else uses anything: the whole less the reserve, as often as the host is promised. The
     * documents and the metrics call this the capacity.
     */
    readonly mostBytes: number;
    /** What can be promised in all as things are: the same, less what other programs hold. */
    readonly roomBytes: number;
    /** What is promised: limits of what runs, what paused ones hold, builds and all, of every process of ours. */
    readonly promisedBytes: number;
    /** What running sandboxes hold. */
    readonly usedBytes: number;
    /** What paused sandboxes still hold. It counts: it is not there for anybody else. */
    readonly pausedBytes: number;
    /** What nobody uses at the moment, of the whole. */
    readonly availableBytes: number;
    /** @deprecated `totalBytes` under its first name. */
    readonly capacityBytes: number;
  };
  readonly cpus: number;
  /** Processes and threads, by the same words. */
  readonly pids: {
    readonly total: number;
    readonly reserve: number;
    readonly most: number;
    readonly room: number;
    readonly promised: number;
    /** What sandboxes hold, running or paused. */
    readonly used: number;
    /** @deprecated `total` under its first name. */
    readonly capacity: number;
  };
  /** Of the pool that sandboxes and images lie on, which need not be all of the file system around it; by the same words. */
  readonly disk: {
    readonly totalBytes: number;
    readonly reserveBytes: number;
    readonly mostBytes: number;
    readonly roomBytes: number;
    readonly promisedBytes: number;
    /** All that lies there: sandboxes, images, volumes. */
    readonly usedBytes: number;
    /** What sandboxes hold of that. */
    readonly heldBytes: number;
    /** @deprecated `totalBytes` under its first name. */
    readonly capacityBytes: number;
  };
  /** Who has what of it: all of them for the operator, its own for a key. */
  readonly reservations: readonly {
    readonly id: string;
    readonly kind: string | null;
    /** The id of the key; empty for what was made without a server. */
    readonly key: string | null;
    readonly memoryBytes: number;
    readonly pids: number;
    readonly diskBytes: number;
  }[];
  /** How many wait for room. */
  readonly waiting: number;
  readonly pressure: HostPressure;
  readonly sandboxes: { readonly running: number; readonly paused: number };
  readonly warm: WarmInfo;
  readonly engine: string;
}

/** Sandboxes that are kept ready before anybody asks for them. */
export interface WarmInfo {
  readonly ready: number;
  /** What they take of the budget. */
  readonly promisedBytes: number;
  readonly promisedPids: number;
  /** What they really hold. */
  readonly usedBytes: number;
  readonly usedPids: number;
  /** Since the start of the server: made in all, asked for when one was ready, and when none was. */
  readonly made: number;
  readonly hits: number;
  readonly misses: number;
  /** Made and never used, by why. */
  readonly waste: {
    readonly age: number;
    readonly unwanted: number;
    readonly evicted: number;
    readonly unhealthy: number;
    readonly drained: number;
    readonly closed: number;
  };
}

/**
 * What an engine is. Bubblewrap implements it now; gVisor and Docker will, and the same contract suite runs over each.
 *
 * Theory of operation (bubblewrap):
 *
 *   this process ──spawns──> holdfast-launch ──becomes──> bwrap ──clones──> guest (PID 1 inside) ──> commands
 *        │                      (root)                 (sandbox's uid)      (root inside, nobody outside)
 *        └──────────── unix socket, by path on the host ───────────────────────┘
 *
 * The launcher joins the sandbox's cgroups before it does anything else, so everything after it is counted and can be
 * killed by its cgroup. This process keeps no pipe to any of them: it can die and come back, connect by path, and go on.
 * Everything the guest says is hostile input.
 */
import type { Duplex, Readable, Writable } from "node:stream";
import type {
  CommandEnding,
  CommandLimits,
  MemoryLimitChange,
  ProcessRow,
  ResizeLimits,
  SandboxEnding,
  SandboxId,
  SandboxLimits,
} from "@holdfast/protocol";
import type { PressureReading, SandboxGauge, UnownedReport } from "./governor/pressure.js";
import type { Admission, BudgetReport, HostCapacity, MemoryEvent } from "./governor/types.js";
import type { LayerId, Layers, SnapshotReport } from "./layers.js";
import type { Volumes } from "./volumes.js";
import type { WarmClaim, WarmStats } from "./warm.js";

/** Where a sandbox's files start from. */
export type ImageSource =
  /** The host's own programs, read-only, with a generated /etc. */
  | { readonly kind: "host" }
  /** A root file system directory; never written to. */
  | { readonly kind: "rootfs"; readonly path: string }
  /** Layers of the engine's own, uppermost first; never written to. */
  | { readonly kind: "layers"; readonly layers: readonly LayerId[] };

/** What a sandbox may reach. Nothing comes in but through `Sandbox.dial`. */
export type NetworkSpec =
  | { readonly kind: "none" }
  /**
   * TCP and DNS out, carried by the guest to this process, which decides and dials. Of the rules for an address the most
   * specific wins, of two alike the denial. What no rule names is allowed.
   */
  | { readonly kind: "egress"; readonly deny: readonly string[]; readonly allow: readonly string[] };

export interface MountSpec {
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
}

export interface SandboxSpec {
  /** Made up if absent. */
  readonly id?: SandboxId | undefined;
  readonly image: ImageSource;
  readonly limits: SandboxLimits;
  readonly env: Readonly<Record<string, string>>;
  /** Directories of the host, shown inside. Only what the caller names; nothing by default. */
  readonly mounts: readonly MountSpec[];
  readonly hostname: string;
  /** Who runs commands that do not say; must exist in the image, else root. */
  readonly defaultUser: string;
  /**
   * What happens when the process that made it dies. `keep`: it runs on until adopted or swept. `end`: the guest ends it
   * within seconds, because nobody would ever come back for it.
   */
  readonly whenOwnerDies: "keep" | "end";
  readonly labels: Readonly<Record<string, string>>;
  /** Where commands start that do not say; their user's home if absent or not there. */
  readonly workdir: string | undefined;
  /** Its files begin as a copy of this layer's, and count as its own. The image lies below. */
  readonly disk: { readonly from: LayerId } | undefined;
  readonly network: NetworkSpec;
  /** What it writes is going to be a layer. It could be in any case, but then only by a copy. */
  readonly makesLayer: boolean;
}

export interface CommandSpec {
  readonly argv: readonly string[];
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly cwd?: string | undefined;
  /** Name, uid or uid:gid; the sandbox's default user if absent. */
  readonly user?: string | undefined;
  /** `open` gives the command a pipe to read from; `closed` is /dev/null. */
  readonly stdin?: "open" | "closed" | undefined;
  readonly pty?: { readonly columns: number; readonly rows: number } | undefined;
  readonly limits?: CommandLimits | undefined;
  /** Between SIGTERM and SIGKILL at the deadline. */
  readonly graceMs?: number | undefined;
  /**
   * `block`: a slow reader slows the command down and no byte is lost. `drop`: the command never waits; a reader that is
   * too far behind is told exactly which bytes it missed.
   */
  readonly whenReaderIsSlow?: "block" | "drop" | undefined;
  /** Keep up to so many bytes of older output in a file as well. They count against the disk. */
  readonly spillBytes?: number | undefined;
  readonly tag?: string | undefined;
}

/** A stretch of output. `gap` stands where bytes are no longer kept. */
export type OutputEvent =
  | { readonly kind: "data"; readonly stream: "stdout" | "stderr"; readonly offset: number; readonly bytes: Buffer }
  | { readonly kind: "gap"; readonly stream: "stdout" | "stderr"; readonly offset: number; readonly length: number };

export interface OutputOffsets {
  readonly stdout: number;
  readonly stderr: number;
}

export interface CommandSummary {
  readonly id: number;
  readonly pid: number;
  readonly tag: string | undefined;
  readonly argv: readonly string[];
  readonly running: boolean;
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
}

/** One thing run in a sandbox. */
export interface Command {
  readonly id: number;
  /** As seen inside. */
  readonly pid: number;
  /** Present if stdin is open or it has a pty. */
  readonly stdin: Writable | undefined;
  /** The output, once, as it comes; reading it slowly is what `whenReaderIsSlow` speaks of. Ends after the last byte. */
  output(): AsyncIterable<OutputEvent>;
  /** How it ended. Resolves when it is known, whether or not the output has been read. Never rejects. */
  readonly ended: Promise<CommandEnding>;
  signal(signal: string | number, options?: { readonly whole?: boolean }): Promise<void>;
  resize(size: { readonly columns: number; readonly rows: number }): Promise<void>;
  /** Ends it and all it started: SIGTERM, after the grace SIGKILL. Returns when it has ended. */
  cancel(by: string, options?: { readonly graceMs?: number }): Promise<CommandEnding>;
  /**
   * Lets go of the output stream; the command runs on. Everything else of this handle goes on working: stdin, signals,
   * resizing, the ending. Only `stdin.end()` closes the command's stdin, letting go never does.
   */
  detach(): void;
}

export interface FileEntry {
  readonly name: string;
  readonly path: string;
  readonly type: "file" | "directory" | "symlink" | "other";
  readonly sizeBytes: number;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly owner: string;
  readonly group: string;
  readonly modifiedNs: bigint;
  readonly link:
    | {
        readonly target: string;
        readonly resolved: string | undefined;
        readonly targetType: FileEntry["type"] | undefined;
        readonly targetMode: number | undefined;
        readonly targetSizeBytes: number | undefined;
      }
    | undefined;
  readonly attributes: Readonly<Record<string, Buffer>>;
}

export interface WatchEvent {
  /** `caught_up`: what had happened when that was asked for has all been told. */
  readonly kind: "create" | "write" | "remove" | "rename" | "chmod" | "overflow" | "caught_up";
  /** Relative to the watched directory. */
  readonly name: string;
}

export interface Watch extends AsyncIterable<WatchEvent> {
  /** For readers who want to know of all that has happened until now: `caught_up` comes behind it, once for each call. */
  catchUp(): void;
}

export interface WriteOptions {
  readonly user?: string | undefined;
  readonly mode?: number | undefined;
  /** Write into the existing file from here instead of replacing it. */
  readonly offset?: number | undefined;
  readonly atomic?: boolean | undefined;
  readonly parents?: boolean | undefined;
  readonly attributes?: Readonly<Record<string, string | Buffer>> | undefined;
}

/** Files inside. Every path is resolved inside the sandbox, by the guest. */
export interface SandboxFiles {
  stat(path: string, options?: { readonly user?: string }): Promise<FileEntry>;
  list(path: string, options?: { readonly user?: string; readonly depth?: number }): AsyncIterable<FileEntry>;
  read(
    path: string,
    options?: { readonly user?: string; readonly offset?: number; readonly length?: number },
  ): Promise<{ readonly entry: FileEntry; readonly content: Readable }>;
  write(path: string, content: Readable | Buffer | string, options?: WriteOptions): Promise<FileEntry>;
  makeDirectory(
    path: string,
    options?: { readonly user?: string; readonly mode?: number; readonly parents?: boolean },
  ): Promise<{ readonly entry: FileEntry; readonly created: boolean }>;
  move(from: string, to: string, options?: { readonly user?: string }): Promise<FileEntry>;
  remove(path: string, options?: { readonly user?: string; readonly recursive?: boolean }): Promise<number>;
  watch(
    path: string,
    options?: { readonly user?: string; readonly recursive?: boolean; readonly signal?: AbortSignal },
  ): Promise<Watch>;
}

export interface SandboxStats {
  readonly memoryBytes: number;
  /** What of it is page cache, which the kernel takes back when memory is short. */
  readonly memoryCacheBytes: number;
  readonly memoryPeakBytes: number | null;
  readonly memoryLimitBytes: number;
  /** How far the limit may grow by itself. */
  readonly memoryCeilingBytes: number;
  readonly pids: number;
  readonly pidsLimit: number;
  readonly cpuMs: number;
  readonly diskBytes: number | null;
  readonly diskLimitBytes: number;
}

/** How it was when its end began, before anything was killed. */
export interface FinalLook {
  readonly processes: readonly ProcessRow[];
  /** By name; null where the kernel does not keep it. */
  readonly counters: Readonly<Record<string, number | null>>;
}

export const SANDBOX_STATES = ["running", "frozen", "ended"] as const;
export type SandboxState = (typeof SANDBOX_STATES)[number];

export interface Sandbox {
  readonly id: SandboxId;
  readonly spec: SandboxSpec;
  readonly createdAt: Date;
  readonly state: SandboxState;
  /** The limits in force, which `resize` changes. */
  readonly limits: SandboxLimits;
  readonly files: SandboxFiles;
  readonly gauge: SandboxGauge;
  start(command: CommandSpec, options?: { readonly signal?: AbortSignal }): Promise<Command>;
  /** What runs or has run and is still remembered. */
  commands(): Promise<CommandSummary[]>;
  /** Comes back to a command, from the given offsets or from the first byte that is kept. */
  attach(
    commandId: number,
    options?: { readonly from?: OutputOffsets; readonly whenReaderIsSlow?: "block" | "drop" },
  ): Promise<Command>;
  dial(target: { readonly port: number } | { readonly path: string }): Promise<Duplex>;
  stats(): Promise<SandboxStats>;
  /** More than the host has room for is `host_capacity`, and nothing changes. */
  resize(limits: ResizeLimits): Promise<void>;
  /** How its memory limit has moved by itself, the newest last: a limit with a ceiling does. */
  readonly limitHistory: readonly MemoryLimitChange[];
  /** Calls `listener` whenever it is held at its memory limit, or the limit moves by itself. Returns what ends that. */
  onMemory(listener: (event: MemoryEvent) => void): () => void;
  /**
   * Freezing, thawing, reclaiming, resizing and snapshots of one sandbox happen one after the other, in the order asked for.
   *
   * While it stands still, the host's budget counts what it holds and no longer what it may take. With `keepsPromise` it goes
   * on counting as if it ran: its way back is certain.
   */
  freeze(options?: { readonly keepsPromise?: boolean }): Promise<void>;
  /** Its limits must fit into the host's budget again, and may wait for that. */
  thaw(admission?: Admission): Promise<void>;
  /**
   * Gives back what memory can be released without ending anything: page cache, and with swap what lies idle. Resolves to
   * the bytes released, after about a second at most. Works on a frozen sandbox too.
   */
  reclaim(): Promise<number>;
  /** What runs in it now, as the host sees it, up to a bound. */
  processes(): ProcessRow[];
  /**
   * Keeps what it has written as a layer, as of one moment: frozen, synced, copied, thawed. Nothing inside notices but the
   * time. A sandbox that is frozen already stays so.
   */
  snapshot(id: LayerId): Promise<SnapshotReport>;
  kill(by: string): Promise<SandboxEnding>;
  /** Ends it because its time is up: as `kill`, with `timed_out` as the cause. */
  expire(limitMs: number): Promise<SandboxEnding>;
  /** Ends all its processes and keeps its files: `Engine.boot` starts it again. Works on a frozen sandbox too. */
  stop(by: string): Promise<SandboxEnding>;
  /** Known when `ended` has resolved, unless it ended without us. */
  readonly finalLook: FinalLook | undefined;
  /** Resolves when everything of it is gone from the host. Never rejects. */
  readonly ended: Promise<SandboxEnding>;
}

export interface SweepReport {
  readonly id: SandboxId;
  /** How many processes were ended. */
  readonly processes: number;
  readonly why: string;
}

/** Sandboxes that are ready before anybody asks for them. */
export interface WarmSandboxes {
  /** Undefined if none is ready, or nothing like this can be made before it is asked for. Counts as demand for more. */
  claim(spec: Partial<SandboxSpec>): Promise<WarmClaim | undefined>;
  stats(): WarmStats;
  /** Ends all that are ready: the host needs what they hold. */
  evictAll(): Promise<void>;
  /** Resolves when nothing more is being made for now. */
  idle(): Promise<void>;
}

export interface Engine {
  readonly kind: string;
  readonly layers: Layers;
  readonly volumes: Volumes;
  readonly warm: WarmSandboxes;
  /**
   * Nothing of it begins before the host's budget has room for it: see `Admission`. With a claim it is the ready one, under
   * that one's id, if the spec is of the same shape; should it have died meanwhile, a new one under the same id.
   */
  create(
    spec: Partial<SandboxSpec>,
    options?: {
      readonly signal?: AbortSignal | undefined;
      readonly admission?: Admission | undefined;
      readonly warm?: WarmClaim | undefined;
    },
  ): Promise<Sandbox>;
  get(id: SandboxId): Sandbox | undefined;
  list(): Sandbox[];
  /** Takes over the sandboxes that a dead process of ours left running. */
  adopt(): Promise<Sandbox[]>;
  /** The sandboxes that were stopped: files without processes. They belong to no process, and only `discard` removes them. */
  stopped(): SandboxId[];
  /**
   * Starts a stopped sandbox again: the same id, spec, limits and files, new processes. If that fails, it stays stopped and
   * keeps its files.
   */
  boot(
    id: SandboxId,
    options?: { readonly signal?: AbortSignal | undefined; readonly admission?: Admission | undefined },
  ): Promise<Sandbox>;
  /** Removes a stopped sandbox and its files. */
  discard(id: SandboxId): Promise<void>;
  /**
   * Makes a stopped sandbox of one that ran when the host went down, if it was meant to be kept. False if there is none
   * such; what is not salvaged is swept.
   */
  salvage(id: SandboxId): boolean;
  capacity(): Promise<HostCapacity>;
  /**
   * What the host has to give, what is promised of it and to whom. Without `reservations` their list stays empty, and
   * nothing is read that there is more of with every sandbox.
   */
  budget(options?: { readonly reservations?: boolean }): Promise<BudgetReport>;
  /** How short the host is, or what the cgroups around us leave of it. */
  pressure(): PressureReading;
  /**
   * Ends and removes whatever of ours is left, belongs to no living process and was not adopted. `abandoned` leaves alone
   * what is meant to be kept: somebody else may be about to adopt it. Stopped sandboxes stay in any case.
   */
  sweep(options?: { readonly which?: "all" | "abandoned" }): Promise<SweepReport[]>;
  /**
   * Finds processes of ours that belong to nobody, and ends them: those of sandboxes whose process died, and those in
   * cgroups of sandboxes that nothing else on the host knows of any more. The latter must be seen so twice, a while apart.
   */
  endUnowned(): Promise<UnownedReport[]>;
  /** Lets go of everything: sandboxes are killed, or left to be adopted. Stopped ones stay as they are. */
  close(options: { readonly sandboxes: "kill" | "keep" }): Promise<void>;
}

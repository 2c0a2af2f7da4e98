/**
 * The middle of the server: what the E2B routes, our own routes, envd and the proxy all call. They translate; what a
 * sandbox's life means is decided here, once.
 */
import type { CommandSpec, OutputEvent, OutputOffsets, Sandbox, SnapshotReport } from "@holdfast/engine";
import type { ImageName, TakenSnapshot } from "@holdfast/images";
import type {
  CommandEnding,
  HoldfastError,
  HostInfo,
  Postmortem,
  ResizeLimits,
  SandboxEnding,
  SandboxId,
  SandboxLimits,
  SandboxPressure,
} from "@holdfast/protocol";
import type { RefusedWork } from "../pressure/refusals.js";
import type {
  CommandRow,
  EventRow,
  KeyLimits,
  NetworkSettings,
  SampleRow,
  SandboxQuery,
  SandboxRow,
  VolumeMount,
} from "../store/store.js";
import type { Look } from "./sampler.js";

/** Who asks. The operator comes over the unix socket in the state directory and sees everything. */
export type Caller =
  | { readonly kind: "operator" }
  | { readonly kind: "key"; readonly keyId: string; readonly limits: KeyLimits };

export interface CreateRequest {
  readonly template: string;
  /** An image by name, digest or id, instead of the template. */
  readonly image?: string | undefined;
  /** Whatever would differ from what is asked for is an error. */
  readonly strict?: boolean | undefined;
  readonly volumes?: readonly VolumeMount[] | undefined;
  readonly timeoutMs: number;
  readonly onTimeout: "kill" | "pause" | "stop";
  readonly autoResume: boolean;
  readonly limits: Partial<Omit<SandboxLimits, "wallMs">>;
  readonly env: Readonly<Record<string, string>>;
  readonly metadata: Readonly<Record<string, string>>;
  readonly network: NetworkSettings;
  /** How long it may wait for room on the host; as the server has it if absent. */
  readonly waitMs?: number | undefined;
}

/** What a request to a sandbox finds. */
export type Opened =
  | { readonly kind: "running"; readonly live: LiveSandbox }
  /** Paused, and not to be woken by this request; `wakeable` if another kind of request would wake it. */
  | { readonly kind: "paused"; readonly wakeable: boolean; readonly row: SandboxRow }
  /** Being paused, resumed or ended right now. */
  | { readonly kind: "busy" }
  | { readonly kind: "missing"; readonly ending: SandboxEnding | undefined; readonly endedAt: Date | undefined };

export interface Forked {
  readonly forks: readonly ({ readonly row: SandboxRow } | { readonly error: HoldfastError })[];
  readonly report: SnapshotReport;
}

/** Every method that takes a caller answers `sandbox_not_found` for what is not the caller's. */
export interface Sandboxes {
  /**
   * Waits for room on the host; the signal ends the waiting, not a creation that is under way, and does nothing with an
   * idempotency token: somebody may come back for it. With an idempotency token, the same request gives the same sandbox; another
   * request with it `idempotency_conflict`.
   */
  create(
    caller: Caller,
    request: CreateRequest,
    options?: { readonly idempotencyToken?: string | undefined; readonly signal?: AbortSignal | undefined },
  ): Promise<SandboxRow>;
  /** An ended sandbox is found too, for a day: its status says so. */
  find(caller: Caller, id: string): Promise<SandboxRow>;
  /** Like `find`, but an ended one is `sandbox_ended` with its cause in the message. */
  findAlive(caller: Caller, id: string): Promise<SandboxRow>;
  list(caller: Caller, query: Omit<SandboxQuery, "keyId">): Promise<SandboxRow[]>;
  countRunning(caller: Caller): Promise<number>;
  kill(caller: Caller, id: string, by: string): Promise<SandboxEnding>;
  /** From now; `extend` never brings the end nearer. */
  setTimeout(
    caller: Caller,
    id: string,
    timeoutMs: number,
    options?: { readonly extendOnly?: boolean },
  ): Promise<SandboxRow>;
  /** `sandbox_paused` if it is paused already. */
  pause(caller: Caller, id: string, options: { readonly memory: boolean }): Promise<SandboxRow>;
  /** A running one only has its time extended. `memory: false` boots it anew even if its memory was kept. */
  resume(
    caller: Caller,
    id: string,
    options: { readonly timeoutMs?: number | undefined; readonly memory?: boolean | undefined },
  ): Promise<{ readonly row: SandboxRow; readonly resumed: boolean }>;
  resize(caller: Caller, id: string, limits: ResizeLimits): Promise<SandboxRow>;
  setNetwork(caller: Caller, id: string, network: NetworkSettings): Promise<SandboxRow>;
  samples(
    caller: Caller,
    id: string,
    range: { readonly from?: Date | undefined; readonly to?: Date | undefined },
  ): Promise<SampleRow[]>;
  latestSamples(caller: Caller, ids: readonly string[]): Promise<SampleRow[]>;
  /** A look right now. */
  look(caller: Caller, id: string): Promise<Look>;
  events(
    caller: Caller,
    query: {
      readonly sandboxId?: string | undefined;
      readonly after?: number | undefined;
      readonly newestFirst?: boolean | undefined;
      readonly limit: number;
    },
  ): Promise<EventRow[]>;
  /** Goes on as they happen, without a gap after those that are there, until the signal. */
  followEvents(
    caller: Caller,
    query: { readonly sandboxId?: string | undefined; readonly after: number | undefined },
    signal: AbortSignal,
  ): AsyncIterable<EventRow>;
  postmortem(caller: Caller, id: string): Promise<Omit<Postmortem, "sandbox" | "events">>;
  commands(caller: Caller, id: string): Promise<CommandRow[]>;
  command(caller: Caller, id: string, commandId: number): Promise<CommandRow>;
  /** Its files as an image, as of now. Works on one that is paused with its memory, too. */
  snapshot(caller: Caller, id: string, options: { readonly names?: readonly ImageName[] }): Promise<TakenSnapshot>;
  /** New sandboxes with its files. Each succeeds or fails by itself. */
  fork(
    caller: Caller,
    id: string,
    options: { readonly count: number; readonly timeoutMs?: number | undefined },
  ): Promise<Forked>;
  /** A running sandbox of the caller's, to work in; resumed first if it is paused and may be. */
  openFor(caller: Caller, id: string): Promise<LiveSandbox>;
  /** By id alone: for requests that prove themselves by the sandbox's own tokens. */
  open(id: string, options?: { readonly wake?: boolean }): Promise<Opened>;
  /** Null for one that this server does not have running. */
  pressureOf(id: SandboxId): SandboxPressure | null;
  /** Throws while the host is too short of memory or processes for anything new; what runs is not concerned. */
  requireCalm(work: RefusedWork): void;
  /** Of what is promised to others a key sees the sums only. */
  host(caller: Caller): Promise<HostInfo>;
  /** Secrets of a sandbox are derived from the server's own, so they survive it and are stored nowhere. */
  envdToken(id: SandboxId): string;
  trafficToken(id: SandboxId): string;
}

/** A sandbox that runs, with what the server keeps about it. */
export interface LiveSandbox {
  readonly id: SandboxId;
  /** As it is now. */
  readonly row: SandboxRow;
  readonly sandbox: Sandbox;
  readonly commands: LiveCommands;
  /** Aborted when it stops running: it is paused or has ended. Whoever streams from it cuts the connection then. */
  readonly gone: AbortSignal;
}

export type CommandSelector = { readonly id: number } | { readonly pid: number } | { readonly tag: string };

export interface LiveCommands {
  /** Starts it; the attachment that comes back reads its output from the first byte. */
  start(spec: CommandSpec): Promise<Attachment>;
  /** Those that run, oldest first. */
  running(): Promise<CommandRow[]>;
  /** The newest that fits, one that runs before one that has ended; else `command_not_found`. */
  find(selector: CommandSelector): Promise<CommandRow>;
  /**
   * Reads output from the offsets; without them from the first byte that nobody has been given yet, so that a reader who
   * was cut off goes on where the last one stopped.
   */
  attach(
    id: number,
    options?: { readonly from?: OutputOffsets | undefined; readonly whenReaderIsSlow?: "block" | "drop" },
  ): Promise<Attachment>;
  /** `command_not_found` if it has ended. */
  signal(id: number, signal: string | number, options?: { readonly whole?: boolean }): Promise<void>;
  resize(id: number, size: { readonly columns: number; readonly rows: number }): Promise<void>;
  /** Resolves when the guest has taken it: a program that does not read holds up its writer, not the server. */
  writeInput(id: number, bytes: Uint8Array): Promise<void>;
  closeInput(id: number): Promise<void>;
  cancel(id: number, by: string, options?: { readonly graceMs?: number }): Promise<CommandEnding>;
}

/** One reader of one command's output. */
export interface Attachment {
  readonly row: CommandRow;
  /**
   * Once. Leaving the loop detaches; the command runs on. Ends without an error when the command has ended or the sandbox
   * is gone.
   */
  output(): AsyncIterable<OutputEvent>;
  /** The client has this event: who connects later without an offset goes on behind it. Also when the sandbox is gone. */
  delivered(event: OutputEvent): void;
  readonly ended: Promise<CommandEnding>;
  detach(): void;
}

/**
 * How things end. One closed union for a command, one for a sandbox, and the same facts as *incidents* when they
 * happened on the way although the command went on. `unknown` does not exist: what cannot be explained is `lost`, with
 * what is known about why.
 */
import type { SandboxId } from "./ids.js";
import type { MemoryLimitChange } from "./limits.js";

export type Signal = `SIG${string}`;

/** A process that the kernel killed for memory. */
export interface OomVictim {
  readonly name: string;
  /** As seen inside the sandbox; null if it was gone before we could ask. */
  readonly pid: number | null;
  readonly hostPid: number | null;
  readonly rssBytes: number | null;
}

export const OOM_SCOPES = ["command", "sandbox", "host"] as const;
/** Whose limit was hit: the command's own, the sandbox's, or the host was out of memory altogether. */
export type OomScope = (typeof OOM_SCOPES)[number];

export interface OutOfMemory {
  readonly kind: "out_of_memory";
  readonly scope: OomScope;
  /** The limit that was hit; null for the host. */
  readonly limitBytes: number | null;
  readonly peakBytes: number | null;
  readonly kills: number;
  readonly victims: readonly OomVictim[];
  /** How the limit had moved until then, if it is one that does; the newest last. */
  readonly limitHistory?: readonly MemoryLimitChange[];
  /** How far it may grow, if it is one that does. A limit below it means that the host had no room for more. */
  readonly ceilingBytes?: number;
}

export interface OutOfPids {
  readonly kind: "out_of_pids";
  readonly limit: number;
  readonly peak: number | null;
  /** How many forks or threads were refused. */
  readonly refused: number;
}

export interface OutOfDisk {
  readonly kind: "out_of_disk";
  readonly limitBytes: number;
  readonly usedBytes: number;
}

export const SIGNAL_SENDERS = ["program", "caller"] as const;

export type CommandCause =
  | { readonly kind: "exited"; readonly code: number }
  | { readonly kind: "signaled"; readonly signal: Signal; readonly by: (typeof SIGNAL_SENDERS)[number] | null }
  | { readonly kind: "timed_out"; readonly limitMs: number }
  | OutOfMemory
  | OutOfPids
  | OutOfDisk
  | { readonly kind: "canceled"; readonly by: string }
  | { readonly kind: "lost"; readonly why: string };

/** It failed after its sandbox had been held at its memory limit for want of room on the host: what needs memory may fail then. */
export interface MemoryHeld {
  readonly kind: "memory_held";
  readonly limitBytes: number;
  readonly heldMs: number;
}

export type Incident = OutOfMemory | OutOfPids | OutOfDisk | MemoryHeld;

export type SandboxCause =
  | { readonly kind: "killed"; readonly by: string }
  /** All its processes were ended and its files were kept: it can be started again. */
  | { readonly kind: "stopped"; readonly by: string }
  | { readonly kind: "timed_out"; readonly limitMs: number }
  | OutOfMemory
  | OutOfDisk
  | { readonly kind: "guest_exited"; readonly status: string }
  | { readonly kind: "guest_broke_protocol"; readonly why: string }
  | { readonly kind: "failed_to_start"; readonly why: string }
  | { readonly kind: "swept"; readonly why: string }
  | { readonly kind: "lost"; readonly why: string };

/** All kinds that there are: the compiler refuses one too few and one too many. */
export const COMMAND_CAUSES = Object.keys({
  exited: true,
  signaled: true,
  timed_out: true,
  out_of_memory: true,
  out_of_pids: true,
  out_of_disk: true,
  canceled: true,
  lost: true,
} satisfies Record<CommandCause["kind"], true>) as readonly CommandCause["kind"][];

export const INCIDENTS = Object.keys({
  out_of_memory: true,
  out_of_pids: true,
  out_of_disk: true,
  memory_held: true,
} satisfies Record<Incident["kind"], true>) as readonly Incident["kind"][];

export const SANDBOX_CAUSES = Object.keys({
  killed: true,
  stopped: true,
  timed_out: true,
  out_of_memory: true,
  out_of_disk: true,
  guest_exited: true,
  guest_broke_protocol: true,
  failed_to_start: true,
  swept: true,
  lost: true,
} satisfies Record<SandboxCause["kind"], true>) as readonly SandboxCause["kind"][];

export interface Usage {
  readonly memoryPeakBytes: number | null;
  readonly cpuMs: number;
  readonly wallMs: number;
  readonly pidsPeak: number | null;
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
}

export interface CommandEnding {
  readonly cause: CommandCause;
  readonly incidents: readonly Incident[];
  /** What a shell would report: the exit code, or 128 + the signal's number. */
  readonly exitCode: number;
  readonly usage: Usage;
  /** For a person: what happened, with the numbers, and what to do about it. */
  readonly message: string;
}

export interface SandboxEnding {
  readonly sandboxId: SandboxId;
  readonly cause: SandboxCause;
  readonly usage: Pick<Usage, "memoryPeakBytes" | "cpuMs" | "wallMs" | "pidsPeak">;
  readonly message: string;
}

/**
 * Why a command ended. Exit codes prove nothing: a shell may return 0 after its child was killed for memory, and 137 may
 * be anybody's doing. Order of belief: our own intent, then the kernel's counters, then the signal, then the exit code.
 *
 * Pure: everything it weighs is handed in.
 */
import {
  type CommandCause,
  type CommandEnding,
  describeCommandEnding,
  type Incident,
  type OomVictim,
  type OutOfDisk,
  type OutOfMemory,
  type OutOfPids,
  type SandboxLimits,
  signalName,
} from "@holdfast/protocol";
import type { CommandCounters } from "./cgroups/index.js";
import type { GuestExit } from "./guest/command-stream.js";

/** Why *we* ended it, decided at the moment of decision and never overwritten. */
export type KillIntent = { readonly kind: "canceled"; readonly by: string } | { readonly kind: "timed_out"; readonly limitMs: number };

export interface Evidence {
  readonly intent: KillIntent | undefined;
  readonly exit: GuestExit;
  /** Undefined if the command's cgroup was gone before it could be read. */
  readonly counters: CommandCounters | undefined;
  readonly sandboxLimits: SandboxLimits;
  readonly commandLimits: { readonly memoryBytes?: number | undefined; readonly pids?: number | undefined; readonly wallMs?: number | undefined };
  /** Forks refused to the whole sandbox while this command ran; newer kernels count only there. */
  readonly sandboxPidsRefused: number;
  readonly victims: readonly OomVictim[];
  readonly hostWideOom: boolean;
  readonly diskUsedBytes: number | null;
  /** The last signal that the caller had us send, if any. */
  readonly callersSignal: number | undefined;
}

/** btrfs refuses a write when what is left is less than it needs, which is before the last byte. */
const DISK_FULL_MARGIN_BYTES = 2 * 1024 * 1024;

function findOutOfMemory(evidence: Evidence): OutOfMemory | undefined {
  const { counters, sandboxLimits } = evidence;
  if (counters === undefined || counters.oomKills === 0) return undefined;
  const ownLimit = counters.memoryLimitBytes ?? evidence.commandLimits.memoryBytes;
  const byOwnLimit = ownLimit !== undefined && ownLimit < sandboxLimits.memoryBytes && counters.ownLimitHits > 0;
  const scope = evidence.hostWideOom ? "host" : byOwnLimit ? "command" : "sandbox";
  return {
    kind: "out_of_memory",
    scope,
    limitBytes: scope === "host" ? null : scope === "command" ? (ownLimit ?? null) : sandboxLimits.memoryBytes,
    peakBytes: counters.memoryPeakBytes ?? null,
    kills: counters.oomKills,
    victims: evidence.victims,
  };
}

function findOutOfPids(evidence: Evidence): OutOfPids | undefined {
  const refused = Math.max(evidence.counters?.pidsRefused ?? 0, evidence.sandboxPidsRefused);
  if (refused === 0) return undefined;
  return {
    kind: "out_of_pids",
    limit: evidence.commandLimits.pids ?? evidence.sandboxLimits.pids,
    peak: evidence.counters?.pidsPeak ?? null,
    refused,
  };
}

function findOutOfDisk(evidence: Evidence): OutOfDisk | undefined {
  const { diskUsedBytes, sandboxLimits } = evidence;
  if (diskUsedBytes === null || diskUsedBytes < sandboxLimits.diskBytes - DISK_FULL_MARGIN_BYTES) return undefined;
  return { kind: "out_of_disk", limitBytes: sandboxLimits.diskBytes, usedBytes: diskUsedBytes };
}

function decideCause(evidence: Evidence, incidents: readonly Incident[]): CommandCause {
  const { intent, exit } = evidence;
  if (intent !== undefined) return intent;
  if (exit.timedOut) return { kind: "timed_out", limitMs: evidence.commandLimits.wallMs ?? 0 };
  // A command that returned 0 got over whatever happened on the way; one that failed is explained by it.
  if (exit.code !== 0) {
    const [worst] = incidents;
    if (worst !== undefined) return worst;
  }
  if (exit.signal !== undefined) {
    return { kind: "signaled", signal: signalName(exit.signal), by: evidence.callersSignal === exit.signal ? "caller" : "program" };
  }
  return { kind: "exited", code: exit.code ?? 0 };
}

export function explainEnding(evidence: Evidence): CommandEnding {
  const { exit, counters } = evidence;
  // In the order in which they explain a failure: memory kills, the others only refuse.
  const found = [findOutOfMemory(evidence), findOutOfPids(evidence), findOutOfDisk(evidence)].filter((fact) => fact !== undefined);
  const cause = decideCause(evidence, found);
  const incidents = found.filter((fact) => fact !== cause);
  return {
    cause,
    incidents,
    exitCode: exit.code ?? 128 + (exit.signal ?? 0),
    usage: {
      memoryPeakBytes: counters?.memoryPeakBytes ?? null,
      cpuMs: counters?.cpuUsec === undefined ? exit.cpuMs : counters.cpuUsec / 1000,
      wallMs: exit.wallMs,
      pidsPeak: counters?.pidsPeak ?? null,
      stdoutBytes: exit.stdoutBytes,
      stderrBytes: exit.stderrBytes,
    },
    message: describeCommandEnding(cause, incidents),
  };
}

/** A command whose sandbox went before it could report: the reason is the sandbox's. */
export function endingWithoutExit(cause: CommandCause, wallMs: number): CommandEnding {
  return {
    cause,
    incidents: [],
    exitCode: cause.kind === "timed_out" ? 124 : 137,
    usage: { memoryPeakBytes: null, cpuMs: 0, wallMs, pidsPeak: null, stdoutBytes: 0, stderrBytes: 0 },
    message: describeCommandEnding(cause, []),
  };
}

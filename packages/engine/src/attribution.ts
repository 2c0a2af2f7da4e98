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
  type MemoryHeld,
  type MemoryLimitChange,
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
export type KillIntent =
  | { readonly kind: "canceled"; readonly by: string }
  | { readonly kind: "timed_out"; readonly limitMs: number };

/** What the disk's quota showed. */
export interface DiskEvidence {
  /** When the command started; null if it is not known. */
  readonly usedBytesBefore: number | null;
  /** The most that was seen while it ran. btrfs takes freed space off the count only later, so a full disk is seen here. */
  readonly usedBytesPeak: number | null;
}

export interface Evidence {
  readonly intent: KillIntent | undefined;
  readonly exit: GuestExit;
  /** Undefined if the command's cgroup was gone before it could be read. */
  readonly counters: CommandCounters | undefined;
  readonly sandboxLimits: SandboxLimits;
  /** How the sandbox's memory limit had moved by itself; absent if it does not. */
  readonly limitHistory?: readonly MemoryLimitChange[];
  /** How long the sandbox had no room for more memory while the command ran. */
  readonly heldMs?: number;
  readonly commandLimits: {
    readonly memoryBytes?: number | undefined;
    readonly pids?: number | undefined;
    readonly wallMs?: number | undefined;
  };
  /** Forks refused while this command ran that the kernel put down to the sandbox as a whole. */
  readonly unattributedPidsRefused: number;
  readonly victims: readonly OomVictim[];
  readonly hostWideOom: boolean;
  readonly disk: DiskEvidence;
  /** The last signal that the caller had us send, if any. */
  readonly callersSignal: number | undefined;
}

/** The kernel charges in batches: a process may be killed a little before the peak shows the limit. */
const PEAK_MARGIN_BYTES = 512 * 1024;
/** btrfs refuses a write when what is left is less than it needs, which is before the last byte. */
const DISK_FULL_MARGIN_BYTES = 2 * 1024 * 1024;

function findOutOfMemory(evidence: Evidence): OutOfMemory | undefined {
  const { counters, sandboxLimits } = evidence;
  if (counters === undefined || counters.oomKills === 0) return undefined;
  const ownLimit = counters.memoryLimitBytes ?? evidence.commandLimits.memoryBytes;
  // v1 does not count hits of a limit that led to a kill; there, the peak tells.
  const atOwnLimit = ownLimit !== undefined && (counters.memoryPeakBytes ?? 0) >= ownLimit - PEAK_MARGIN_BYTES;
  const byOwnLimit =
    ownLimit !== undefined && ownLimit < sandboxLimits.memoryBytes && (counters.ownLimitHits > 0 || atOwnLimit);
  const scope = evidence.hostWideOom ? "host" : byOwnLimit ? "command" : "sandbox";
  return {
    kind: "out_of_memory",
    scope,
    limitBytes: scope === "host" ? null : scope === "command" ? (ownLimit ?? null) : sandboxLimits.memoryBytes,
    peakBytes: counters.memoryPeakBytes ?? null,
    kills: counters.oomKills,
    victims: evidence.victims,
    ...(scope === "sandbox" && growthOf(evidence)),
  };
}

function growthOf({ sandboxLimits, limitHistory = [] }: Evidence): Pick<OutOfMemory, "limitHistory" | "ceilingBytes"> {
  const { memoryMaxBytes } = sandboxLimits;
  return {
    ...(limitHistory.length > 0 && { limitHistory }),
    ...(memoryMaxBytes !== undefined && { ceilingBytes: memoryMaxBytes }),
  };
}

/** Who failed by itself may have done so for want of memory; who was killed for it, or ended by us, is explained. */
function findMemoryHeld({ heldMs = 0, exit, sandboxLimits }: Evidence, { kind }: CommandCause): MemoryHeld | undefined {
  if (heldMs === 0 || exit.code === 0 || (kind !== "exited" && kind !== "signaled")) return undefined;
  return { kind: "memory_held", limitBytes: sandboxLimits.memoryBytes, heldMs };
}

function findOutOfPids(evidence: Evidence): OutOfPids | undefined {
  const refused = Math.max(evidence.counters?.pidsRefused ?? 0, evidence.unattributedPidsRefused);
  if (refused === 0) return undefined;
  return {
    kind: "out_of_pids",
    limit: evidence.commandLimits.pids ?? evidence.sandboxLimits.pids,
    peak: evidence.counters?.pidsPeak ?? null,
    refused,
  };
}

function findOutOfDisk(evidence: Evidence): { fact: OutOfDisk; wasFullBefore: boolean } | undefined {
  const { usedBytesBefore, usedBytesPeak } = evidence.disk;
  const limitBytes = evidence.sandboxLimits.diskBytes;
  const full = limitBytes - Math.min(DISK_FULL_MARGIN_BYTES, limitBytes / 10);
  if (usedBytesPeak === null || usedBytesPeak < full) return undefined;
  return {
    fact: { kind: "out_of_disk", limitBytes, usedBytes: usedBytesPeak },
    wasFullBefore: usedBytesBefore === null || usedBytesBefore >= full,
  };
}

function decideCause(evidence: Evidence, incidents: readonly (OutOfMemory | OutOfPids | OutOfDisk)[]): CommandCause {
  const { intent, exit } = evidence;
  if (intent !== undefined) return intent;
  if (exit.timedOut) return { kind: "timed_out", limitMs: evidence.commandLimits.wallMs ?? 0 };
  // A command that returned 0 got over whatever happened on the way; one that failed is explained by it.
  if (exit.code !== 0) {
    const [worst] = incidents;
    if (worst !== undefined) return worst;
  }
  if (exit.signal !== undefined) {
    const by = evidence.callersSignal === exit.signal ? "caller" : "program";
    return { kind: "signaled", signal: signalName(exit.signal), by };
  }
  return { kind: "exited", code: exit.code ?? 0 };
}

export function explainEnding(evidence: Evidence): CommandEnding {
  const { exit, counters } = evidence;
  const disk = findOutOfDisk(evidence);
  // In the order in which they explain a failure: memory kills, the others only refuse.
  const explaining: (OutOfMemory | OutOfPids | OutOfDisk)[] = [
    findOutOfMemory(evidence),
    findOutOfPids(evidence),
    disk?.wasFullBefore === false ? disk.fact : undefined,
  ].filter((fact) => fact !== undefined);
  const cause = decideCause(evidence, explaining);
  const incidents: Incident[] = explaining.filter((fact) => fact !== cause);
  // A disk that was full already proves nothing about this command, but is worth a word if it failed.
  if (disk?.wasFullBefore === true && exit.code !== 0) incidents.push(disk.fact);
  const held = findMemoryHeld(evidence, cause);
  if (held !== undefined) incidents.push(held);
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

/**
 * The budget of a sandbox and of a command. Every limit is set before anything untrusted runs.
 */
import { invalidArgument } from "./errors.js";

export interface SandboxLimits {
  /** Memory of everything the commands hold: heap, page cache they caused, /dev/shm and other tmpfs. */
  readonly memoryBytes: number;
  /**
   * How far the memory limit may grow while there is room on the host, instead of a kill: `memoryBytes` is where it starts.
   * Undefined: not at all.
   */
  readonly memoryMaxBytes?: number | undefined;
  /** Processes and threads alive at once, the sandbox's own two included. */
  readonly pids: number;
  /** Thousandths of a CPU per second of time: 1500 is one and a half CPUs. */
  readonly cpuMillis: number;
  /** Everything written to the sandbox's files, /tmp included. */
  readonly diskBytes: number;
  /** How much of each command's stdout and stderr stays readable after the fact (its tail; the head is kept too). */
  readonly outputBytes: number;
  /** How long the sandbox may live; undefined is for ever. */
  readonly wallMs: number | undefined;
}

/** One step of a memory limit that moves by itself. */
export interface MemoryLimitChange {
  readonly at: string;
  readonly fromBytes: number;
  readonly toBytes: number;
  /** How long it was held before; null if it did not come to that. */
  readonly heldMs: number | null;
}

/** The most that its memory limit can come to. */
export function ceilingBytesOf(limits: Pick<SandboxLimits, "memoryBytes" | "memoryMaxBytes">): number {
  return limits.memoryMaxBytes ?? limits.memoryBytes;
}

export const DEFAULT_SANDBOX_LIMITS: SandboxLimits = {
  memoryBytes: 512 * 1024 * 1024,
  memoryMaxBytes: undefined,
  pids: 256,
  cpuMillis: 1000,
  diskBytes: 1024 * 1024 * 1024,
  outputBytes: 1024 * 1024,
  wallMs: undefined,
};

/**
 * Of a sandbox's PIDs these are not for commands: the bubblewrap process on the host, the guest, and slack that makes
 * the pids cgroup refuse a fork before RLIMIT_NPROC does, because only the cgroup counts refusals.
 */
export const RESERVED_PIDS = 4;

const MIB = 1024 * 1024;
const RULES: Record<
  Exclude<keyof SandboxLimits, "wallMs" | "memoryMaxBytes">,
  { min: number; max: number; unit: string }
> = {
  memoryBytes: { min: 8 * MIB, max: 2 ** 50, unit: "bytes" },
  pids: { min: 8, max: 4_194_304, unit: "processes" },
  cpuMillis: { min: 10, max: 1_000_000, unit: "thousandths of a CPU" },
  diskBytes: { min: MIB, max: 2 ** 50, unit: "bytes" },
  outputBytes: { min: 4096, max: 16 * MIB, unit: "bytes" },
};

function requireInteger(field: string, value: unknown, min: number, max: number, unit: string): void {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < min || value > max) {
    throw invalidArgument(field, value, `a whole number of ${unit} from ${min} to ${max}`);
  }
}

/** Fills in defaults and refuses what is out of range, by name. */
export function resolveSandboxLimits(given: GivenLimits = {}): SandboxLimits {
  for (const key of Object.keys(given)) {
    if (!(key in DEFAULT_SANDBOX_LIMITS)) {
      throw invalidArgument(
        `limits.${key}`,
        given[key as keyof SandboxLimits],
        `one of ${Object.keys(DEFAULT_SANDBOX_LIMITS).join(", ")}`,
      );
    }
  }
  const resolved = {
    memoryBytes: given.memoryBytes ?? Math.min(DEFAULT_SANDBOX_LIMITS.memoryBytes, given.memoryMaxBytes ?? Infinity),
    memoryMaxBytes: given.memoryMaxBytes,
    pids: given.pids ?? DEFAULT_SANDBOX_LIMITS.pids,
    cpuMillis: given.cpuMillis ?? DEFAULT_SANDBOX_LIMITS.cpuMillis,
    diskBytes: given.diskBytes ?? DEFAULT_SANDBOX_LIMITS.diskBytes,
    outputBytes: given.outputBytes ?? DEFAULT_SANDBOX_LIMITS.outputBytes,
    wallMs: given.wallMs,
  };
  for (const [name, rule] of Object.entries(RULES)) {
    requireInteger(`limits.${name}`, resolved[name as keyof typeof RULES], rule.min, rule.max, rule.unit);
  }
  if (resolved.memoryMaxBytes !== undefined) {
    const { max, unit } = RULES.memoryBytes;
    requireInteger("limits.memoryMaxBytes", resolved.memoryMaxBytes, resolved.memoryBytes, max, unit);
  }
  if (resolved.wallMs !== undefined) requireInteger("limits.wallMs", resolved.wallMs, 1, 2 ** 40, "milliseconds");
  return resolved;
}

type GivenLimits = { readonly [K in keyof SandboxLimits]?: SandboxLimits[K] | undefined };

/** What was asked for instead of the defaults. A size alone is a size that stays; a ceiling alone lowers where it starts. */
export function limitsInstead(defaults: SandboxLimits, asked: GivenLimits): SandboxLimits {
  const { memoryBytes, memoryMaxBytes } = asked;
  const limits = {
    ...defaults,
    ...Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== undefined)),
  };
  if (memoryBytes !== undefined && memoryMaxBytes === undefined) return { ...limits, memoryMaxBytes: undefined };
  if (memoryBytes !== undefined || memoryMaxBytes === undefined) return limits;
  return { ...limits, memoryBytes: Math.min(defaults.memoryBytes, memoryMaxBytes) };
}

/** The limits that can be changed while a sandbox runs. */
export type ResizeLimits = {
  readonly [K in "memoryBytes" | "memoryMaxBytes" | "cpuMillis" | "pids"]?: SandboxLimits[K] | undefined;
};

/** A size alone is a size that stays; a ceiling alone lets the limit go on from where it is. */
export function changedLimits(before: SandboxLimits, change: ResizeLimits): SandboxLimits {
  const limits = {
    ...before,
    memoryBytes: change.memoryBytes ?? before.memoryBytes,
    cpuMillis: change.cpuMillis ?? before.cpuMillis,
    pids: change.pids ?? before.pids,
  };
  const ceilingBytes = change.memoryMaxBytes;
  if (ceilingBytes !== undefined) {
    const memoryBytes = change.memoryBytes ?? Math.min(before.memoryBytes, ceilingBytes);
    return { ...limits, memoryBytes, memoryMaxBytes: ceilingBytes };
  }
  return change.memoryBytes === undefined ? limits : { ...limits, memoryMaxBytes: undefined };
}

/** What one command may have, at most what its sandbox has. */
export interface CommandLimits {
  readonly memoryBytes?: number | undefined;
  readonly pids?: number | undefined;
  readonly wallMs?: number | undefined;
}

export function validateCommandLimits(limits: CommandLimits): void {
  if (limits.memoryBytes !== undefined) {
    requireInteger("limits.memoryBytes", limits.memoryBytes, MIB, RULES.memoryBytes.max, "bytes");
  }
  if (limits.pids !== undefined) requireInteger("limits.pids", limits.pids, 1, RULES.pids.max, "processes");
  if (limits.wallMs !== undefined) requireInteger("limits.wallMs", limits.wallMs, 1, 2 ** 40, "milliseconds");
}

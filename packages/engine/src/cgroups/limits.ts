/** How limits are written, by version, and taken back when one of them is refused. */
import { HoldfastError, RESERVED_PIDS } from "@holdfast/protocol";
import type { Hierarchy } from "./hierarchies.js";
import { holdMark } from "./hold.js";
import {
  errnoOf,
  hasFile,
  QUICK_BYTES,
  readKernelFile,
  readNumber,
  type SlowWrite,
  writeKernelFile,
} from "./kernel-files.js";

/** For bubblewrap and the guest, outside of what the commands may use: the control channel outlives their OOM. */
export const GUEST_MEMORY_BYTES = 96 * 1024 * 1024;
export const GUEST_PIDS = 80;

const SMALLEST_SOCKET_BYTES = 4 * 1024 * 1024;

/** A compromised guest shall not fill the kernel with cgroups: one level, and more than any sandbox runs at once. */
const COMMAND_CGROUPS_MAX = 4096;

export interface LimitWrite {
  readonly file: string;
  readonly value: string;
  /** Skipped where the kernel has no such file. */
  readonly optional?: boolean;
}

/** Writes in order; when one fails, the earlier ones are taken back in reverse order. */
export function applyLimits(writes: readonly LimitWrite[]): void {
  const undo: { file: string; value: string }[] = [];
  try {
    for (const { file, value, optional } of writes) {
      const before = readKernelFile(file);
      if (before === undefined && optional === true) continue;
      writeKernelFile(file, value);
      if (before !== undefined) undo.push({ file, value: before.trim() });
    }
  } catch (reason) {
    for (const { file, value } of undo.reverse()) {
      try {
        writeKernelFile(file, value);
      } catch {
        // The first failure is the one to report; a stricter limit that stays is on the safe side.
      }
    }
    throw reason;
  }
}

/** Swap is never part of the budget: a sandbox that swaps is slow for all, and its limit would mean nothing. */
export function memoryWrites(hierarchy: Hierarchy, directory: string, bytes: number): LimitWrite[] {
  if (hierarchy.version === 2) {
    return [
      { file: `${directory}/memory.swap.max`, value: "0", optional: true },
      { file: `${directory}/memory.oom.group`, value: "0", optional: true },
      { file: `${directory}/memory.max`, value: String(bytes) },
    ];
  }
  const memory = { file: `${directory}/memory.limit_in_bytes`, value: String(bytes) };
  const withSwap = { file: `${directory}/memory.memsw.limit_in_bytes`, value: String(bytes), optional: true };
  // v1 counts the buffers of sockets apart from memory, and bounds them only where it is told to.
  const sockets = {
    file: `${directory}/memory.kmem.tcp.limit_in_bytes`,
    value: String(Math.max(SMALLEST_SOCKET_BYTES, Math.floor(bytes / 8))),
    optional: true,
  };
  // The kernel keeps memory + swap at least as large as memory, at every moment.
  const before = readNumber(memory.file);
  return before !== undefined && bytes > before ? [withSwap, memory, sockets] : [memory, withSwap, sockets];
}

export function pidsWrites(directory: string, pids: number): LimitWrite[] {
  const forSandbox = { file: `${directory}/pids.max`, value: String(pids + GUEST_PIDS) };
  const forCommands = { file: `${directory}/cmd/pids.max`, value: String(Math.max(1, pids - RESERVED_PIDS)) };
  return [forSandbox, forCommands];
}

export function guestWrites(memory: Hierarchy, memoryDir: string, pidsDir: string): LimitWrite[] {
  return [
    ...memoryWrites(memory, `${memoryDir}/guest`, GUEST_MEMORY_BYTES),
    { file: `${pidsDir}/guest/pids.max`, value: String(GUEST_PIDS) },
  ];
}

/** The unified hierarchy alone can bound how many cgroups there are. */
export function commandTreeWrites(directory: string): LimitWrite[] {
  return [
    { file: `${directory}/cmd/cgroup.max.descendants`, value: String(COMMAND_CGROUPS_MAX), optional: true },
    { file: `${directory}/cmd/cgroup.max.depth`, value: "1", optional: true },
  ];
}

const PERIOD_USEC = 100_000;
const LONGEST_PERIOD_USEC = 1_000_000;
/** The kernel takes no shorter quota. */
const SHORTEST_QUOTA_USEC = 1000;

/** A share of a CPU as time in each period. Tiny shares get a longer period instead of a quota that is too short. */
export function cpuQuota(cpuMillis: number): { quotaUsec: number; periodUsec: number } {
  const quotaUsec = Math.round((cpuMillis * PERIOD_USEC) / 1000);
  if (quotaUsec >= SHORTEST_QUOTA_USEC) return { quotaUsec, periodUsec: PERIOD_USEC };
  const periodUsec = Math.round((SHORTEST_QUOTA_USEC * 1000) / Math.max(cpuMillis, 1));
  return { quotaUsec: SHORTEST_QUOTA_USEC, periodUsec: Math.min(periodUsec, LONGEST_PERIOD_USEC) };
}

const CPU_WEIGHTS = {
  1: { file: "cpu.shares", one: 1024, least: 2, most: 262_144 },
  2: { file: "cpu.weight", one: 100, least: 1, most: 10_000 },
} as const;

/**
 * A bound, and a weight: where all want more than the host has, each gets of it in proportion to what it may have. One CPU weighs
 * what the kernel gives whoever says nothing.
 */
export function cpuWrites(hierarchy: Hierarchy, directory: string, cpuMillis: number | undefined): LimitWrite[] {
  return [...cpuBoundWrites(hierarchy, directory, cpuMillis), cpuWeightWrite(hierarchy, directory, cpuMillis ?? 1000)];
}

function cpuWeightWrite({ version }: Hierarchy, directory: string, cpuMillis: number): LimitWrite {
  const { file, one, most, least } = CPU_WEIGHTS[version];
  const weight = Math.round((one * cpuMillis) / 1000);
  return { file: `${directory}/${file}`, value: String(Math.min(most, Math.max(least, weight))) };
}

function cpuBoundWrites(hierarchy: Hierarchy, directory: string, cpuMillis: number | undefined): LimitWrite[] {
  if (hierarchy.version === 2) {
    const quota = cpuMillis === undefined ? undefined : cpuQuota(cpuMillis);
    const value = quota === undefined ? `max ${PERIOD_USEC}` : `${quota.quotaUsec} ${quota.periodUsec}`;
    return [{ file: `${directory}/cpu.max`, value }];
  }
  const unlimited = { file: `${directory}/cpu.cfs_quota_us`, value: "-1" };
  if (cpuMillis === undefined) return [unlimited];
  const { quotaUsec, periodUsec } = cpuQuota(cpuMillis);
  // v1 refuses a child more than its parent has; then the parent's quota is the tighter bound already.
  if (exceedsEnclosingQuota(hierarchy, quotaUsec / periodUsec)) return [unlimited];
  return [
    unlimited,
    { file: `${directory}/cpu.cfs_period_us`, value: String(periodUsec) },
    { file: `${directory}/cpu.cfs_quota_us`, value: String(quotaUsec) },
  ];
}

function exceedsEnclosingQuota(hierarchy: Hierarchy, ratio: number): boolean {
  for (let at = hierarchy.parent; at.length >= hierarchy.mountPoint.length; at = at.slice(0, at.lastIndexOf("/"))) {
    const quotaUsec = Number(readKernelFile(`${at}/cpu.cfs_quota_us`) ?? -1);
    const periodUsec = Number(readKernelFile(`${at}/cpu.cfs_period_us`) ?? PERIOD_USEC);
    if (quotaUsec > 0 && ratio > quotaUsec / periodUsec) return true;
  }
  return false;
}

/**
 * v1 refuses a limit below what is in use and cannot be reclaimed. v2 would take it and kill for it, so there the room is
 * made first, and the answer is the same refusal.
 */
export function requireRoom(hierarchy: Hierarchy, directory: string, bytes: number): void {
  if (hierarchy.version === 1) return;
  const current = `${directory}/memory.current`;
  const excess = (readNumber(current) ?? 0) - bytes;
  if (excess <= 0) return;
  if (hasFile(directory, "memory.reclaim")) {
    try {
      writeKernelFile(`${directory}/memory.reclaim`, String(excess));
    } catch (reason) {
      // EAGAIN says that less was reclaimed than asked for; what is in use now decides.
      if (errnoOf(reason) !== "EAGAIN") throw reason;
    }
  }
  const usageBytes = readNumber(current) ?? 0;
  if (usageBytes > bytes) throw memoryInUse(bytes, usageBytes);
}

/**
 * Has the kernel take back, somewhere else, what would be in the way of a lower limit: writing the limit is quick afterwards. On
 * v1 there is no other way than to write it, so it may be in force already.
 */
export async function makeRoom(
  hierarchy: Hierarchy,
  directory: string,
  { bytes, slowly }: { readonly bytes: number; readonly slowly: SlowWrite },
): Promise<void> {
  const isV1 = hierarchy.version === 1;
  const usage = `${directory}/${isV1 ? "memory.usage_in_bytes" : "memory.current"}`;
  const usedBytes = readNumber(usage) ?? 0;
  const wantedBytes = isV1 ? bytes : holdMark(bytes);
  if (usedBytes - wantedBytes <= QUICK_BYTES) return;
  if (!isV1 && !hasFile(directory, "memory.reclaim")) return;
  const [file, value] = isV1 ? ["memory.limit_in_bytes", bytes] : ["memory.reclaim", usedBytes - wantedBytes];
  if (!(await slowly(`${directory}/${file}`, String(value)))) return;
  const leftBytes = readNumber(usage) ?? 0;
  if (leftBytes - bytes > QUICK_BYTES) throw memoryInUse(bytes, leftBytes);
}

export function memoryInUse(bytes: number, usageBytes: number | undefined, cause?: unknown): HoldfastError {
  const inUse = usageBytes === undefined ? "more" : `${usageBytes} bytes`;
  return new HoldfastError("invalid_argument", `limits.memoryBytes: ${bytes} is too low, ${inUse} are in use`, {
    hint: "End some of the commands first, or choose a limit above what they use.",
    details: { field: "limits.memoryBytes", requestedBytes: bytes, usageBytes },
    cause,
  });
}

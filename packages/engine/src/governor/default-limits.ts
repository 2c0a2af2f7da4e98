/** What a sandbox gets that asked for nothing: what nobody asked for must not be what keeps it from being made. */
import { DEFAULT_SANDBOX_LIMITS } from "@holdfast/protocol";
import { type Amounts, mapAmounts } from "./amounts.js";
import type { HostCapacity } from "./types.js";

const MIB = 1024 * 1024;
/** So much of the host at most is for one that asked for nothing. */
const SHARE = 1 / 4;
const LEAST: Amounts = { memoryBytes: 32 * MIB, pids: 16, diskBytes: 16 * MIB };

export function mostByDefault(capacity: HostCapacity): Amounts {
  return mapAmounts((resource) => Math.max(LEAST[resource], Math.floor(capacity[resource] * SHARE)));
}

/** The defaults, or less on a small host. */
export function defaultLimitsFor(capacity: HostCapacity): Amounts {
  const most = mostByDefault(capacity);
  return mapAmounts((resource) => Math.min(DEFAULT_SANDBOX_LIMITS[resource], most[resource]));
}

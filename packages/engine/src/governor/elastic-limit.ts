/** How far a memory limit moves at a time, between where it starts and its ceiling. */

const MIB = 1024 * 1024;
/** Limits are moved in whole steps of this. */
const GRAIN_BYTES = 16 * MIB;
const LEAST_GROWTH_BYTES = 32 * MIB;
/** On v2 whoever has come to the limit sleeps for a while at each step: few large ones are better than many. */
const GROWTH = 2;
const LESS_GROWTH = 1.25;
/** What lies above the working set after a shrink: enough that the next breath is not a hold. */
const MARGIN_SHARE = 0.25;
/** More than what counts as near to a limit (cgroups/hold.ts): what has just been lowered must not be raised at once. */
const MARGIN_BYTES = 96 * MIB;
/** A limit is not worth moving down for less than this share of it. */
const WORTH_SHARE = 0.25;

const roundUp = (bytes: number): number => Math.ceil(bytes / GRAIN_BYTES) * GRAIN_BYTES;

/** The limits worth trying for a sandbox that is held, the best first; none if it is at its ceiling. */
export function growthSteps(limitBytes: number, ceilingBytes: number): number[] {
  const wanted = [
    roundUp(Math.max(limitBytes * GROWTH, limitBytes + LEAST_GROWTH_BYTES)),
    roundUp(Math.max(limitBytes * LESS_GROWTH, limitBytes + LEAST_GROWTH_BYTES)),
    roundUp(limitBytes + LEAST_GROWTH_BYTES),
    roundUp(limitBytes + GRAIN_BYTES),
  ].map((bytes) => Math.min(bytes, ceilingBytes));
  return [...new Set(wanted)].filter((bytes) => bytes > limitBytes);
}

/** The limit that is enough for what it really uses; undefined if it is not worth the trouble. */
export function shrunkLimit(facts: {
  readonly limitBytes: number;
  readonly startBytes: number;
  readonly workingSetBytes: number;
}): number | undefined {
  const { limitBytes, startBytes, workingSetBytes } = facts;
  const marginBytes = MARGIN_BYTES + workingSetBytes * MARGIN_SHARE;
  const enough = Math.max(startBytes, roundUp(workingSetBytes + marginBytes));
  return limitBytes - enough >= limitBytes * WORTH_SHARE ? enough : undefined;
}

import type { Asked } from "./demand.js";

/**
 * How many of each shape are to be ready: no more than were asked for lately. When they do not all fit, every shape has one
 * before any has two, the most asked for first.
 */
export function targetsOf(
  ranked: readonly Asked[],
  bounds: { readonly perShape: number; readonly total: number },
): Map<string, number> {
  const targets = new Map<string, number>();
  let left = bounds.total;
  for (let round = 1; round <= bounds.perShape; round++) {
    for (const { shape, times } of ranked) {
      if (left <= 0) return targets;
      if (times < round) continue;
      targets.set(shape, round);
      left -= 1;
    }
  }
  return targets;
}

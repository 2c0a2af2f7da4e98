/**
 * Holding instead of killing. On v1 the kernel can be told not to kill at a limit: whoever needs memory then waits until the
 * limit is raised, or until somebody ends. On v2 there is a second limit below the first, at which whoever takes more is slowed
 * down so much that there is time to decide.
 */
import type { Hierarchy } from "./hierarchies.js";
import { readKeyed, readNumber, writeKernelFile } from "./kernel-files.js";

const MIB = 1024 * 1024;
/** On v2, between being slowed down and the limit itself: what can be taken by many threads at once before they sleep. */
const SLACK_SHARE = 1 / 8;
const LEAST_SLACK_BYTES = 8 * MIB;
/**
 * On v1 the kernel holds whoever touches memory, but refuses it to itself: a read(2) into fresh memory fails at the limit. So
 * more is given well before, with time for whoever fills memory fastest.
 */
const LEAST_NEAR_BYTES = 64 * MIB;
const MOST_SLACK_BYTES = 128 * MIB;

/** So much is near the limit: it is given more before it has to be held. */
export function nearMark(limitBytes: number, leastSlackBytes = LEAST_NEAR_BYTES): number {
  const slack = Math.min(MOST_SLACK_BYTES, Math.max(leastSlackBytes, limitBytes * SLACK_SHARE));
  return Math.floor(Math.max(limitBytes / 2, limitBytes - slack));
}

/** To be called again whenever the limit has changed. */
export function setHolding(memory: Hierarchy, directory: string, holding: boolean): void {
  if (memory.version === 1) {
    writeKernelFile(`${directory}/memory.oom_control`, holding ? "1" : "0");
    return;
  }
  const limitBytes = readNumber(`${directory}/memory.max`);
  const mark = holding && limitBytes !== undefined ? String(nearMark(limitBytes, LEAST_SLACK_BYTES)) : "max";
  writeKernelFile(`${directory}/memory.high`, mark);
}

/** `near`: it has almost all of its limit, and uses it. `held`: somebody waits for more. */
export function shortageOf(memory: Hierarchy, directory: string): "none" | "near" | "held" {
  if (memory.version === 1) {
    if (readKeyed(`${directory}/memory.oom_control`)?.get("under_oom") === 1) return "held";
    const limitBytes = readNumber(`${directory}/memory.limit_in_bytes`);
    return limitBytes !== undefined && isAt(nearMark(limitBytes)) ? "near" : "none";
  }
  const mark = readNumber(`${directory}/memory.high`);
  return mark !== undefined && isAt(mark) ? "held" : "none";

  // What it could give back the kernel takes first; what is left is in use.
  function isAt(mark: number): boolean {
    return readWorkingSetBytes(memory, directory) >= mark - MIB;
  }
}

export function readWorkingSetBytes(memory: Hierarchy, directory: string): number {
  const stat = readKeyed(`${directory}/memory.stat`);
  const held = readNumber(`${directory}/${memory.version === 2 ? "memory.current" : "memory.usage_in_bytes"}`) ?? 0;
  return Math.max(0, held - (stat?.get(memory.version === 2 ? "inactive_file" : "total_inactive_file") ?? 0));
}

/**
 * Holding instead of killing. On v1 the kernel can be told not to kill at a limit: whoever needs memory then waits until the
 * limit is raised, or until somebody ends. On v2 there is a second limit below the first, at which whoever takes more is slowed
 * down so much that there is time to decide.
 */
import type { Hierarchy } from "./hierarchies.js";
import { QUICK_BYTES, readKernelFile, readKeyed, readNumber, type SlowWrite, writeKernelFile } from "./kernel-files.js";

const MIB = 1024 * 1024;
/** The kernel counts in these. */
const PAGE_BYTES = 4096;
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
  return Math.floor(Math.max(limitBytes / 2, limitBytes - slack) / PAGE_BYTES) * PAGE_BYTES;
}

/** On v2, where whoever takes more is slowed down. */
export function holdMark(limitBytes: number): number {
  return nearMark(limitBytes, LEAST_SLACK_BYTES);
}

/** One cgroup's. */
export class MemoryHold {
  readonly #memory: Hierarchy;
  readonly #directory: string;
  /** On v2: how often somebody had asked for more than the mark when that was last seen to. */
  #settledAsks: number | undefined;
  #last: Promise<void> = Promise.resolve();

  constructor(memory: Hierarchy, directory: string) {
    this.#memory = memory;
    this.#directory = directory;
  }

  /** To be called again whenever the limit has changed. One after the other: the last one called is the last one written. */
  set(holding: boolean, slowly: SlowWrite): Promise<void> {
    const done = this.#last.then(() => this.#set(holding, slowly));
    this.#last = done.catch(() => {});
    return done;
  }

  async #set(holding: boolean, slowly: SlowWrite): Promise<void> {
    if (this.#memory.version === 1) {
      writeKernelFile(`${this.#directory}/memory.oom_control`, holding ? "1" : "0");
      return;
    }
    const limitBytes = readNumber(`${this.#directory}/memory.max`);
    const mark = holding && limitBytes !== undefined ? holdMark(limitBytes) : undefined;
    const file = `${this.#directory}/memory.high`;
    // Written again, it would be a search for memory again, and who asked for more has asked already.
    if (readKernelFile(file) !== undefined && readNumber(file) === mark) return;
    // Before it moves: whoever asks for more than the new one is heard.
    this.#settledAsks = this.#readAsks();
    const value = mark === undefined ? "max" : String(mark);
    const excess = (readNumber(`${this.#directory}/memory.current`) ?? 0) - (mark ?? Number.POSITIVE_INFINITY);
    if (excess > QUICK_BYTES && (await slowly(file, value))) return;
    writeKernelFile(file, value);
  }

  /** `near`: it has almost all of its limit, and uses it. `held`: somebody waits for more. */
  shortage(): "none" | "near" | "held" {
    return this.#memory.version === 1 ? this.#shortageV1() : this.#shortageV2();
  }

  #shortageV1(): "none" | "near" | "held" {
    if (readKeyed(`${this.#directory}/memory.oom_control`)?.get("under_oom") === 1) return "held";
    const limitBytes = readNumber(`${this.#directory}/memory.limit_in_bytes`);
    return limitBytes !== undefined && this.#isAt(nearMark(limitBytes)) ? "near" : "none";
  }

  /** Nobody is held who is at the mark and asks for nothing: that may last for ever, and there is nothing to be decided. */
  #shortageV2(): "none" | "held" {
    const asks = this.#readAsks();
    this.#settledAsks ??= asks;
    const mark = readNumber(`${this.#directory}/memory.high`);
    if (mark !== undefined && this.#isAt(mark)) return asks > this.#settledAsks ? "held" : "none";
    this.#settledAsks = asks;
    return "none";
  }

  /** What it could give back the kernel takes first; what is left is in use. */
  #isAt(mark: number): boolean {
    return this.readWorkingSetBytes() >= mark - MIB;
  }

  /** Its own: a command may have a mark, too. Whoever sleeps at a mark asks again within two seconds. */
  #readAsks(): number {
    const events = readKeyed(`${this.#directory}/memory.events.local`) ?? readKeyed(`${this.#directory}/memory.events`);
    return events?.get("high") ?? 0;
  }

  readWorkingSetBytes(): number {
    const [usage, idle] =
      this.#memory.version === 2
        ? ["memory.current", "inactive_file"]
        : ["memory.usage_in_bytes", "total_inactive_file"];
    const stat = readKeyed(`${this.#directory}/memory.stat`);
    return Math.max(0, (readNumber(`${this.#directory}/${usage}`) ?? 0) - (stat?.get(idle) ?? 0));
  }
}

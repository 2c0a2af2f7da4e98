/** Freezing and killing everything in a sandbox, by the best means the host has. */
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { errnoOf, readKernelFile, readKeyed, readPidsOfTree, writeKernelFile } from "./kernel-files.js";

/** Stops and continues every process below one directory. */
export interface Freezer {
  request(frozen: boolean): void;
  /** Whether freezing was asked for. */
  isRequested(): boolean;
  /** Whether every process stands still. */
  isDone(): boolean;
}

export function createUnifiedFreezer(directory: string): Freezer {
  return {
    request: (frozen) => writeKernelFile(`${directory}/cgroup.freeze`, frozen ? "1" : "0"),
    isRequested: () => readKernelFile(`${directory}/cgroup.freeze`)?.trim() === "1",
    isDone: () => readKeyed(`${directory}/cgroup.events`)?.get("frozen") === 1,
  };
}

export function createV1Freezer(directory: string): Freezer {
  const state = () => readKernelFile(`${directory}/freezer.state`)?.trim();
  return {
    request: (frozen) => writeKernelFile(`${directory}/freezer.state`, frozen ? "FROZEN" : "THAWED"),
    isRequested: () => state() === "FROZEN" || state() === "FREEZING",
    isDone: () => state() === "FROZEN",
  };
}

const SPIN_MS = 2;
const LONGEST_PAUSE_MS = 5;

/**
 * Waits for something the kernel does within microseconds to milliseconds: first a look at every turn of the event loop,
 * because a timer cannot be shorter than a millisecond, then ever longer pauses. False when the deadline came first.
 */
export async function waitUntil(isDone: () => boolean, deadlineMs: number): Promise<boolean> {
  const start = performance.now();
  let pauseMs = 1;
  while (!isDone()) {
    const elapsedMs = performance.now() - start;
    if (elapsedMs >= deadlineMs) return false;
    if (elapsedMs < SPIN_MS) await nextTurn();
    else {
      await sleep(pauseMs);
      pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
    }
  }
  return true;
}

export interface KillTarget {
  /** The sandbox's `cgroup.kill`, where there is one. */
  readonly killFile: string | undefined;
  readonly freezer: Freezer | undefined;
  /** The sandbox's directory in every hierarchy. */
  readonly directories: readonly string[];
  isEmpty(): boolean;
}

/** How long one round may take before what is left is killed again. */
const ROUND_MS = 20;

export async function killAll(target: KillTarget, deadlineMs: number): Promise<number[]> {
  const deadline = performance.now() + deadlineMs;
  for (;;) {
    await strike(target);
    const leftMs = deadline - performance.now();
    if (await waitUntil(() => target.isEmpty(), Math.min(ROUND_MS, leftMs))) return [];
    if (performance.now() >= deadline) return livingPids(target.directories);
  }
}

export function livingPids(directories: readonly string[]): number[] {
  const pids = new Set(directories.flatMap(readPidsOfTree));
  pids.delete(0);
  return [...pids].sort((a, b) => a - b);
}

async function strike(target: KillTarget): Promise<void> {
  if (target.killFile !== undefined && killWhole(target.killFile)) {
    // A launcher that died half-way is in some hierarchies and not in the unified one. Look only when it is not over:
    // what cgroup.kill has just hit is still listed for a moment.
    if (await waitUntil(() => target.isEmpty(), ROUND_MS)) return;
    signalEach(target.directories);
    return;
  }
  const { freezer } = target;
  if (freezer === undefined) {
    signalEach(target.directories);
    return;
  }
  // Standing still, nothing can fork away, and no pid can be reused between the list and the signal. On v1 the signal
  // takes effect when thawed.
  whileThere(() => freezer.request(true));
  await waitUntil(() => freezer.isDone(), ROUND_MS);
  signalEach(target.directories);
  whileThere(() => freezer.request(false));
}

/** False when this kernel or this cgroup has no such file. */
function killWhole(killFile: string): boolean {
  try {
    writeKernelFile(killFile, "1");
    return true;
  } catch (reason) {
    if (errnoOf(reason) === "ENOENT" || errnoOf(reason) === "ENODEV") return false;
    throw reason;
  }
}

function whileThere(action: () => void): void {
  try {
    action();
  } catch (reason) {
    if (errnoOf(reason) !== "ENOENT" && errnoOf(reason) !== "ENODEV") throw reason;
  }
}

function signalEach(directories: readonly string[]): void {
  for (const directory of directories) {
    // One directory at a time, list and signal together, so that a pid has no time to become another process.
    for (const pid of readPidsOfTree(directory)) {
      if (pid <= 1 || pid === process.pid) continue;
      try {
        process.kill(pid, "SIGKILL");
      } catch (reason) {
        if (errnoOf(reason) !== "ESRCH") throw reason;
      }
    }
  }
}

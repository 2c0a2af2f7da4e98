/** For tests in which processes are orphaned: only PID 1 can reap those, and here it may be a program that never does. */
import { readFileSync } from "node:fs";
import { type Inventory, takeInventory } from "./leaks.js";

export function isRunning(pid: number): boolean {
  try {
    const state = /\) (.)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1];
    return state !== "Z" && state !== "X";
  } catch {
    return false;
  }
}

/** The same inventory, in which the zombies of now are nothing new. */
export function forgiveZombies(before: Inventory): Inventory {
  const zombies = takeInventory().ourProcesses.filter((line) => !isRunning(Number.parseInt(line, 10)));
  return { ...before, ourProcesses: [...before.ourProcesses, ...zombies] };
}

/** Living processes of ours that were not there before. */
export function runningSince(before: Inventory): string[] {
  return takeInventory().ourProcesses.filter(
    (line) => !before.ourProcesses.includes(line) && isRunning(Number.parseInt(line, 10)),
  );
}

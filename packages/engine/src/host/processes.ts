/** Processes are known by pid *and* start time: a pid alone may since have been given to somebody else. */
import { readFileSync } from "node:fs";

export interface ProcessIdentity {
  readonly pid: number;
  /** Clock ticks since boot, field 22 of /proc/PID/stat. */
  readonly startTicks: string;
}

/** The identity of a live process; undefined if there is none. A zombie has ended and does not count. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    // No such process, or it went while we looked.
    return undefined;
  }
  // The name may hold spaces and parentheses; everything after the last ")" is well formed.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const startTicks = fields[19];
  if (startTicks === undefined || fields[0] === "Z" || fields[0] === "X") return undefined;
  return { pid, startTicks };
}

/** Dead, and nobody has waited for it. */
export function hasEndedUnreaped(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).startsWith("Z");
  } catch {
    return false;
  }
}

export function isAlive(identity: ProcessIdentity): boolean {
  return identifyProcess(identity.pid)?.startTicks === identity.startTicks;
}

export function ourIdentity(): ProcessIdentity {
  const identity = identifyProcess(process.pid);
  if (identity === undefined) throw new Error("/proc does not show this process: is /proc mounted?");
  return identity;
}

/** Changes with every boot of the host; start ticks mean nothing across boots. */
export function bootId(): string {
  knownBootId ??= readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  return knownBootId;
}

/** Short enough for file names. */
export const bootTag = (): string => bootId().replaceAll("-", "").slice(0, 12);

let knownBootId: string | undefined;

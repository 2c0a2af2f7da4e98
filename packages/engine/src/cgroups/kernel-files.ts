/**
 * Small synchronous reads and writes of cgroupfs: memory behind a file interface, a few microseconds each, where a trip
 * through the thread pool would cost more than the work.
 */
import { closeSync, constants, existsSync, openSync, readdirSync, readSync, rmdirSync, writeSync } from "node:fs";
import { parseFlatKeyed, parseLimit, parsePids } from "./parse.js";

export function errnoOf(reason: unknown): string | undefined {
  return reason instanceof Error && "code" in reason && typeof reason.code === "string" ? reason.code : undefined;
}

/** ENODEV is a read through a descriptor of a cgroup that was removed meanwhile; ENOTDIR a parent that is no directory. */
const GONE: ReadonlySet<string | undefined> = new Set(["ENOENT", "ENODEV", "ENOTDIR"]);

const FIRST_PIDS_BYTES = 4096;

const scratch = Buffer.allocUnsafe(64 * 1024);

/** The whole file; undefined when the cgroup or the file is not there (any more). */
export function readKernelFile(path: string): string | undefined {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY);
  } catch (reason) {
    if (GONE.has(errnoOf(reason))) return undefined;
    throw reason;
  }
  try {
    let text = "";
    for (;;) {
      const length = readSync(fd, scratch, 0, scratch.length, null);
      if (length === 0) return text;
      // These files are ASCII, so a chunk never ends inside a character.
      text += scratch.toString("latin1", 0, length);
    }
  } catch (reason) {
    if (GONE.has(errnoOf(reason))) return undefined;
    throw reason;
  } finally {
    closeSync(fd);
  }
}

/** Without O_CREAT and O_TRUNC, so that a missing file is ENOENT and not some other error of the kernel's. */
export function writeKernelFile(path: string, value: string): void {
  const fd = openSync(path, constants.O_WRONLY);
  try {
    writeSync(fd, value);
  } finally {
    closeSync(fd);
  }
}

/**
 * The same in another process, for what makes the kernel take memory back: the write returns when that is done, tens of
 * milliseconds for some hundred megabytes of page cache, and nothing else would be done here meanwhile. Resolves to whether it
 * was written; rejects only if it was called off, and then nothing more will be.
 */
export type SlowWrite = (path: string, value: string) => Promise<boolean>;

/** So much is taken back in less time than a process needs to start. */
export const QUICK_BYTES = 16 * 1024 * 1024;

export function readNumber(path: string): number | undefined {
  const text = readKernelFile(path);
  return text === undefined ? undefined : parseLimit(text);
}

export function readKeyed(path: string): Map<string, number> | undefined {
  const text = readKernelFile(path);
  return text === undefined ? undefined : parseFlatKeyed(text);
}

export function hasFile(directory: string, name: string): boolean {
  return existsSync(`${directory}/${name}`);
}

/** The child cgroups by name; empty when the cgroup is gone. */
export function listChildren(directory: string): string[] {
  try {
    return readdirSync(directory, { withFileTypes: true }).flatMap((entry) =>
      entry.isDirectory() ? [entry.name] : [],
    );
  } catch (reason) {
    if (GONE.has(errnoOf(reason))) return [];
    throw reason;
  }
}

/** Process ids of one cgroup, zeros included. */
export function readPids(directory: string): number[] {
  try {
    return parsePids(readKernelFile(`${directory}/cgroup.procs`) ?? "");
  } catch (reason) {
    // Whoever owns a cgroup of the unified hierarchy can make it "threaded": then only its threads can be listed.
    if (errnoOf(reason) === "EOPNOTSUPP" || errnoOf(reason) === "ENOTSUP") {
      return parsePids(readKernelFile(`${directory}/cgroup.threads`) ?? "");
    }
    throw reason;
  }
}

/**
 * The process ids that one read of a cgroup's list gives, some hundreds: v2 makes the list as it is read, so a look at a
 * fork bomb does not cost what listing all of it would.
 */
export function readFirstPids(directory: string): number[] {
  let fd: number;
  try {
    fd = openSync(`${directory}/cgroup.procs`, constants.O_RDONLY);
  } catch {
    return [];
  }
  try {
    const text = scratch.toString("latin1", 0, readSync(fd, scratch, 0, FIRST_PIDS_BYTES, null));
    return parsePids(text.slice(0, text.lastIndexOf("\n") + 1)).filter((pid) => pid > 0);
  } catch {
    // It is gone, or "threaded".
    return [];
  } finally {
    closeSync(fd);
  }
}

/** Process ids of a cgroup and of all below it. */
export function readPidsOfTree(directory: string): number[] {
  const pids: number[] = [];
  const open = [directory];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    pids.push(...readPids(next));
    for (const child of listChildren(next)) open.push(`${next}/${child}`);
  }
  return pids;
}

/** A path this long leaves room for one more name before PATH_MAX. */
const LONGEST_PATH = 3500;

/**
 * Removes a cgroup and all below it, deepest first. False when something is still in use; what could go is gone then.
 */
export function removeTree(directory: string): boolean {
  // Nearly always there is nothing below: the attempt is cheaper than the look.
  if (directory.length <= LONGEST_PATH && removeOne(directory)) return true;
  let emptied = true;
  if (directory.length > LONGEST_PATH) {
    // The sandbox's user owns the commands' cgroups and may nest them until no path reaches them: go on from here.
    const fd = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
    try {
      emptied = removeChildren(`/proc/self/fd/${fd}`);
    } finally {
      closeSync(fd);
    }
  } else {
    emptied = removeChildren(directory);
  }
  return emptied && removeOne(directory);
}

function removeChildren(directory: string): boolean {
  let emptied = true;
  for (const child of listChildren(directory)) emptied = removeTree(`${directory}/${child}`) && emptied;
  return emptied;
}

/** False when busy; a cgroup that was never there counts as removed. */
export function removeOne(directory: string): boolean {
  try {
    rmdirSync(directory);
    return true;
  } catch (reason) {
    const code = errnoOf(reason);
    if (GONE.has(code)) return true;
    if (code === "EBUSY" || code === "ENOTEMPTY") return false;
    throw reason;
  }
}

/** The few numbers of a sandbox's cgroup that are looked at all the time: each is one small read. */
import { parseStall, type StallFigures } from "../governor/pressure.js";
import { readCacheBytes } from "./counters.js";
import { listChildren, readKernelFile, readNumber } from "./kernel-files.js";
import type { CgroupPaths } from "./types.js";

/** Of commands; the guest's own few are not among them. */
export interface TaskCounts {
  /** The living, by command; null's are in no command's place. */
  readonly byCommand: ReadonlyMap<number | null, number>;
  /** All that the limit counts. */
  readonly counted: number;
}

export class CgroupFigures {
  readonly #memory: string;
  readonly #memoryVersion: 1 | 2;
  readonly #pids: string;
  readonly #pressureFile: string | undefined;
  readonly #tasksFile: string;

  constructor({ memory, pids, unified }: CgroupPaths) {
    const first = (...paths: (string | undefined)[]): string => paths.find((path) => path !== undefined) ?? "";
    this.#memory = first(memory, unified);
    this.#memoryVersion = memory === undefined ? 2 : 1;
    this.#pids = first(pids, memory, unified);
    this.#tasksFile = pids === undefined && memory === undefined ? "cgroup.threads" : "tasks";
    // Beside v1 the unified hierarchy limits nothing, but it tells who waits for memory all the same.
    this.#pressureFile = unified === undefined ? undefined : `${unified}/memory.pressure`;
  }

  readStall(): StallFigures | undefined {
    return this.#pressureFile === undefined ? undefined : readStallFile(this.#pressureFile);
  }

  /** What commands hold, page cache apart; that is looked for only if all of it is as much as `exactFromBytes`. */
  readUsedBytes(exactFromBytes: number): number {
    const commands = `${this.#memory}/cmd`;
    const file = this.#memoryVersion === 2 ? "memory.current" : "memory.usage_in_bytes";
    const bytes = readNumber(`${commands}/${file}`) ?? 0;
    if (bytes < exactFromBytes) return bytes;
    return Math.max(0, bytes - readCacheBytes({ version: this.#memoryVersion }, commands));
  }

  readTasks(): number {
    return readNumber(`${this.#pids}/cmd/pids.current`) ?? 0;
  }

  /** The kernel lists the living alone; the difference to what it counts are those that are dead and not waited for. */
  countTasks(): TaskCounts {
    const byCommand = new Map<number | null, number>();
    const own = countLines(`${this.#pids}/cmd/${this.#tasksFile}`);
    if (own > 0) byCommand.set(null, own);
    for (const name of listChildren(`${this.#pids}/cmd`)) {
      const command = /^[1-9]\d{0,14}$/.test(name) ? Number(name) : null;
      const count = this.#tasksBelow(`${this.#pids}/cmd/${name}`);
      if (count > 0) byCommand.set(command, (byCommand.get(command) ?? 0) + count);
    }
    return { byCommand, counted: this.readTasks() };
  }

  #tasksBelow(directory: string): number {
    let count = 0;
    const open = [directory];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      count += countLines(`${next}/${this.#tasksFile}`);
      for (const child of listChildren(next)) open.push(`${next}/${child}`);
    }
    return count;
  }
}

function countLines(path: string): number {
  let text: string;
  try {
    text = readKernelFile(path) ?? "";
  } catch {
    // The kernel does not list what is in this kind of cgroup.
    return 0;
  }
  let count = 0;
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) count += 1;
  return count;
}

export function readStallFile(path: string): StallFigures | undefined {
  try {
    return parseStall(readKernelFile(path) ?? "");
  } catch {
    // The kernel was started with psi=0: the file is there, and cannot be read.
    return undefined;
  }
}

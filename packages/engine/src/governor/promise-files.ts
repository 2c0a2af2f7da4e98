/**
 * Promises as they lie on the disk. A promise is a file whose name says how much and whose text says to whom: there is no
 * other state to keep in step with it, and it is there after whoever made it was killed. Each process has a directory of its
 * own for those that it answers for.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmdirSync, statSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import type { ProcessIdentity } from "../host/processes.js";
import type { Amounts } from "./amounts.js";
import type { ReservationKind } from "./types.js";

/** Gone with the boot, as are the processes that promises are made to. One for each cgroup that bounds sandboxes together. */
export function budgetDirectory(cgroup: string): string {
  return join("/run/holdfast/budget", createHash("sha256").update(cgroup).digest("hex").slice(0, 16));
}

export interface ReservationFacts {
  readonly kind: ReservationKind;
  /** For whom: who shares a place in the waiting line. */
  readonly lane: string;
  /** What is there for as long as the thing itself is. */
  readonly record: string;
}

export interface Promised {
  readonly id: string;
  readonly amounts: Amounts;
}

export interface PromisedFile extends Promised {
  /** Of the process that answers for it. */
  readonly directory: string;
}

const NAME = /^([a-z0-9]{1,64})~(\d{1,16})~(\d{1,16})~(\d{1,16})$/;
const PROCESS = /^(\d{1,10})\.(\d{1,20})\.\d{1,10}$/;
/** What is being written and is no promise yet. */
export const DRAFT = ".draft";

/** One process may open several: each has its own directory, since each knows only its own by heart. */
let opened = 0;

export function newHome({ pid, startTicks }: ProcessIdentity): string {
  return `${pid}.${startTicks}.${opened++}`;
}

export function nameOf({ id, amounts: { memoryBytes, pids, diskBytes } }: Promised): string {
  return `${id}~${memoryBytes}~${pids}~${diskBytes}`;
}

function parseName(name: string): Promised | undefined {
  const [, id, memoryBytes, pids, diskBytes] = NAME.exec(name) ?? [];
  if (id === undefined) return undefined;
  return {
    id,
    amounts: { memoryBytes: Number(memoryBytes), pids: Number(pids), diskBytes: Number(diskBytes) },
  };
}

/** The place where all of them lie. */
export class PromiseFiles {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  path(directory: string, name = ""): string {
    return join(this.#root, directory, name);
  }

  pathOf({ directory, ...promised }: PromisedFile): string {
    return this.path(directory, nameOf(promised));
  }

  /** By their directories, whether or not they still live. */
  processes(): { readonly directory: string; readonly process: ProcessIdentity }[] {
    return namesIn(this.#root).flatMap((directory) => {
      const [, pid, startTicks] = PROCESS.exec(directory) ?? [];
      return startTicks === undefined ? [] : [{ directory, process: { pid: Number(pid), startTicks } }];
    });
  }

  in(directory: string): PromisedFile[] {
    return namesIn(this.path(directory)).flatMap((name) => {
      const promised = parseName(name);
      return promised === undefined ? [] : [{ ...promised, directory }];
    });
  }

  factsOf(file: PromisedFile): Partial<ReservationFacts> {
    try {
      return JSON.parse(readFileSync(this.pathOf(file), "utf8")) as ReservationFacts;
    } catch {
      // Released or adopted while we looked.
      return {};
    }
  }

  /** Changes when anything in the directory does. */
  stampOf(directory: string): string {
    return String(statSync(this.path(directory), { bigint: true, throwIfNoEntry: false })?.mtimeNs);
  }

  remove(file: PromisedFile): void {
    this.#unlink(this.pathOf(file));
  }

  removeDraft(directory: string): void {
    this.#unlink(this.path(directory, DRAFT));
  }

  /** Not if there is more in it. */
  tidy(directory: string): void {
    try {
      rmdirSync(this.path(directory));
    } catch {
      // Somebody needs it, or was quicker.
    }
  }

  /** The place itself, when the last promise of all is gone. */
  tidyAll(): void {
    this.tidy("");
  }

  #unlink(path: string): void {
    try {
      unlinkSync(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw HoldfastError.from(error);
    }
  }
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    // Whoever ended the last sandbox has tidied up.
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw HoldfastError.from(error);
  }
}

/**
 * Who has been promised what, for all processes on this host that make sandboxes below the same cgroup. A promise is a
 * file whose name says how much and whose text says to whom: there is no other state to keep in step with it, and it is
 * there after whoever made it was killed.
 *
 * Nobody locks anything. Whoever wants something first puts the file down, then adds up all files, and takes its own
 * back if the sum is too much. Two at the same moment may both step back, and try again; they can never both stay.
 */
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { isAlive, type ProcessIdentity } from "../host/processes.js";
import { type Amounts, NOTHING, plus } from "./amounts.js";
import type { ReservationKind } from "./types.js";

/** Gone with the boot, as are the processes that promises are made to. One for each cgroup that bounds sandboxes together. */
export function budgetDirectory(cgroup: string): string {
  return join("/run/holdfast/budget", createHash("sha256").update(cgroup).digest("hex").slice(0, 16));
}

export interface ReservationFacts {
  readonly kind: ReservationKind;
  /** For whom: who shares a place in the waiting line. */
  readonly lane: string;
  readonly owner: ProcessIdentity;
  /** What is there for as long as the thing itself is. */
  readonly record: string;
}

export interface ReservationFile extends Partial<ReservationFacts> {
  readonly id: string;
  readonly amounts: Amounts;
}

const NAME = /^([a-z0-9]{1,64})~(\d{1,16})~(\d{1,16})~(\d{1,16})$/;
const DRAFT = /^\.(\d{1,10})\.(\d{1,20})$/;
const MAX_ATTEMPTS = 10;

const nameOf = (id: string, { memoryBytes, pids, diskBytes }: Amounts): string =>
  `${id}~${memoryBytes}~${pids}~${diskBytes}`;

function parseName(name: string): { id: string; amounts: Amounts } | undefined {
  const [, id, memoryBytes, pids, diskBytes] = NAME.exec(name) ?? [];
  if (id === undefined) return undefined;
  return {
    id,
    amounts: { memoryBytes: Number(memoryBytes), pids: Number(pids), diskBytes: Number(diskBytes) },
  };
}

export class ReservationFiles {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Puts it down if `fits` agrees with the sum that includes it; else leaves nothing. */
  take(id: string, amounts: Amounts, facts: ReservationFacts, fits: (sum: Amounts) => boolean): boolean {
    this.#place(nameOf(id, amounts), facts);
    if (fits(this.sum())) return true;
    this.release(id, amounts);
    return false;
  }

  /** The same for another amount of something that has one. */
  change(id: string, from: Amounts, to: Amounts, fits: (sum: Amounts) => boolean): boolean {
    const before = join(this.#directory, nameOf(id, from));
    const after = join(this.#directory, nameOf(id, to));
    renameSync(before, after);
    if (fits(this.sum())) return true;
    renameSync(after, before);
    return false;
  }

  release(id: string, amounts: Amounts): void {
    rmSync(join(this.#directory, nameOf(id, amounts)), { force: true });
  }

  sum(): Amounts {
    return this.#names().reduce((sum, name) => plus(sum, parseName(name)?.amounts ?? NOTHING), NOTHING);
  }

  /** What is promised under this id; several if a process was killed between two of its steps. */
  find(id: string): Amounts[] {
    return this.#names().flatMap((name) => {
      const found = parseName(name);
      return found?.id === id ? [found.amounts] : [];
    });
  }

  /** To whom; nothing if it is not known. */
  factsOf(id: string): Partial<ReservationFacts> {
    const name = this.#names().find((each) => parseName(each)?.id === id);
    return name === undefined ? {} : this.#factsOf(name);
  }

  list(): ReservationFile[] {
    return this.#names().flatMap((name) => {
      const found = parseName(name);
      return found === undefined ? [] : [{ ...found, ...this.#factsOf(name) }];
    });
  }

  /** Makes another process answer for it: the one that adopted what it is for. */
  handOver(id: string, amounts: Amounts, facts: ReservationFacts): void {
    this.#place(nameOf(id, amounts), facts);
  }

  /** Removes what nobody answers for any more: its process is gone, and so is (or never was) what it was for. */
  removeStale(isThere: (record: string, id: string) => boolean): string[] {
    const removed: string[] = [];
    for (const name of this.#names()) {
      const [, pid, startTicks] = DRAFT.exec(name) ?? [];
      if (pid === undefined || startTicks === undefined || isAlive({ pid: Number(pid), startTicks })) continue;
      rmSync(join(this.#directory, name), { force: true });
    }
    for (const { id, amounts, owner, record } of this.list()) {
      // Released while we looked.
      if (owner === undefined || record === undefined) continue;
      if (isAlive(owner) || isThere(record, id)) continue;
      this.release(id, amounts);
      removed.push(id);
    }
    return removed;
  }

  #names(): string[] {
    try {
      return readdirSync(this.#directory);
    } catch (error) {
      // Whoever ended the last sandbox has tidied up.
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
      throw HoldfastError.from(error);
    }
  }

  #factsOf(name: string): Partial<ReservationFacts> {
    try {
      return JSON.parse(readFileSync(join(this.#directory, name), "utf8")) as ReservationFacts;
    } catch {
      // Released while we looked.
      return {};
    }
  }

  /** Whole or not there: the name appears with its text. */
  #place(name: string, facts: ReservationFacts): void {
    const { pid, startTicks } = facts.owner;
    const draft = join(this.#directory, `.${pid}.${startTicks}`);
    for (let attempt = 0; ; attempt++) {
      try {
        writeFileSync(draft, JSON.stringify(facts), { mode: 0o600 });
        renameSync(draft, join(this.#directory, name));
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT" || attempt >= MAX_ATTEMPTS) {
          throw HoldfastError.from(error);
        }
        mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
      }
    }
  }
}

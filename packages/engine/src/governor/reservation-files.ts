/**
 * Who has been promised what, for all processes on this host that make sandboxes below the same cgroup. A promise is a
 * file whose name says how much and whose text says to whom: there is no other state to keep in step with it, and it is
 * there after whoever made it was killed.
 *
 * Nobody locks anything. Whoever wants something first puts the file down, then adds up all files, and takes its own
 * back if the sum is too much. Two at the same moment may both step back, and try again; they can never both stay.
 *
 * Each process has a directory of its own. What is in that it knows by heart, so that a decision costs a look at the
 * others' and not at a thousand of its own.
 */
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { isAlive, type ProcessIdentity } from "../host/processes.js";
import { type Amounts, isSame } from "./amounts.js";
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

interface Promised {
  readonly id: string;
  readonly amounts: Amounts;
}

interface PromisedFile extends Promised {
  /** Of the process that answers for it. */
  readonly directory: string;
}

export type ReservationFile = Promised & Partial<ReservationFacts>;

const NAME = /^([a-z0-9]{1,64})~(\d{1,16})~(\d{1,16})~(\d{1,16})$/;
const PROCESS = /^(\d{1,10})\.(\d{1,20})\.\d{1,10}$/;
const DRAFT = ".draft";
const MAX_ATTEMPTS = 10;

/** One process may open several: each has its own directory, since each knows only its own by heart. */
let opened = 0;

const nameOf = ({ id, amounts: { memoryBytes, pids, diskBytes } }: Promised): string =>
  `${id}~${memoryBytes}~${pids}~${diskBytes}`;

function parseName(name: string): Promised | undefined {
  const [, id, memoryBytes, pids, diskBytes] = NAME.exec(name) ?? [];
  if (id === undefined) return undefined;
  return {
    id,
    amounts: { memoryBytes: Number(memoryBytes), pids: Number(pids), diskBytes: Number(diskBytes) },
  };
}

export class ReservationFiles {
  readonly #directory: string;
  readonly #home: string;
  readonly #ours = new Map<string, Amounts>();

  constructor(directory: string, { pid, startTicks }: ProcessIdentity) {
    this.#directory = directory;
    this.#home = `${pid}.${startTicks}.${opened++}`;
  }

  /** What has been promised to us under this id. */
  ours(id: string): Amounts | undefined {
    return this.#ours.get(id);
  }

  /** Puts it down if `fits` agrees with the sum that includes it; else leaves nothing. Refuses a second one under an id. */
  take(id: string, amounts: Amounts, facts: ReservationFacts, fits: (sum: Amounts) => boolean): boolean {
    if (this.#isStillOurs(id)) throw existsAlready(id);
    this.#place({ id, amounts }, facts);
    const others = this.#others();
    const isAlone = others.every((each) => each.id !== id);
    if (isAlone && fits(this.#sumWith(others))) return true;
    this.release(id);
    if (!isAlone) throw existsAlready(id);
    return false;
  }

  /** The same for another amount of something of ours. */
  change(id: string, to: Amounts, fits: (sum: Amounts) => boolean): boolean {
    const from = this.#ours.get(id);
    if (from === undefined) throw nothingReserved(id);
    if (isSame(from, to)) return true;
    this.#rename(id, from, to);
    if (fits(this.sum())) return true;
    this.#rename(id, to, from);
    return false;
  }

  /** Whoever answers for it. */
  release(id: string): void {
    const ours = this.#ours.get(id);
    if (ours !== undefined) this.#remove({ id, amounts: ours, directory: this.#home });
    else for (const each of this.#others()) if (each.id === id) this.#remove(each);
    this.#ours.delete(id);
    if (this.#ours.size === 0) this.#tidy(this.#home);
  }

  sum(): Amounts {
    return this.#sumWith(this.#others());
  }

  list(): ReservationFile[] {
    return this.#all().map((each) => ({ id: each.id, amounts: each.amounts, ...this.#factsOf(each) }));
  }

  /**
   * Makes us answer for what another process did. If the promise was lost, it is made anew, whatever there is; `asItWas`
   * keeps its size. First the new, then away with the old: nobody finds the room free in between.
   */
  adopt(id: string, amounts: Amounts, facts: ReservationFacts, asItWas: boolean): void {
    const before = this.#all().filter((each) => each.id === id);
    const kept = asItWas && before.length === 1 ? before[0]?.amounts : undefined;
    const [first] = before;
    // Whose it is has not changed.
    this.#place({ id, amounts: kept ?? amounts }, { ...facts, ...(first === undefined ? {} : this.#whoseOf(first)) });
    for (const each of before) {
      if (each.directory !== this.#home || !isSame(each.amounts, kept ?? amounts)) this.#remove(each);
    }
  }

  /** The same promise of ours for somebody else: in one step, so that it is always somebody's. */
  handOver(id: string, facts: ReservationFacts): void {
    const amounts = this.#ours.get(id);
    if (amounts === undefined) throw nothingReserved(id);
    this.#place({ id, amounts }, facts);
  }

  /** Removes what nobody answers for any more: its process is gone, and so is (or never was) what it was for. */
  removeStale(isThere: (record: string, id: string) => boolean): string[] {
    for (const id of this.#ours.keys()) if (!this.#isStillOurs(id)) this.#ours.delete(id);
    const removed: string[] = [];
    for (const directory of this.#processes()) {
      const [, pid, startTicks] = PROCESS.exec(directory) ?? [];
      if (directory === this.#home || isAlive({ pid: Number(pid), startTicks: startTicks ?? "" })) continue;
      removeFile(join(this.#directory, directory, DRAFT));
      for (const each of this.#in(directory)) {
        const { record } = this.#factsOf(each);
        // Without a record it was adopted or released while we looked.
        if (record === undefined || isThere(record, each.id)) continue;
        this.#remove(each);
        removed.push(each.id);
      }
      this.#tidy(directory);
    }
    return removed;
  }

  /** Another process may have adopted it, or taken down what it was for. */
  #isStillOurs(id: string): boolean {
    const amounts = this.#ours.get(id);
    return amounts !== undefined && existsSync(this.#pathOf({ id, amounts, directory: this.#home }));
  }

  #sumWith(others: readonly Promised[]): Amounts {
    let [memoryBytes, pids, diskBytes] = [0, 0, 0];
    const add = (amounts: Amounts) => {
      memoryBytes += amounts.memoryBytes;
      pids += amounts.pids;
      diskBytes += amounts.diskBytes;
    };
    for (const amounts of this.#ours.values()) add(amounts);
    for (const { amounts } of others) add(amounts);
    return { memoryBytes, pids, diskBytes };
  }

  #all(): PromisedFile[] {
    const ours = [...this.#ours].map(([id, amounts]) => ({ id, amounts, directory: this.#home }));
    return [...ours, ...this.#others()];
  }

  #others(): PromisedFile[] {
    return this.#processes().flatMap((directory) => (directory === this.#home ? [] : this.#in(directory)));
  }

  #processes(): string[] {
    return namesIn(this.#directory).filter((name) => PROCESS.test(name));
  }

  #in(directory: string): PromisedFile[] {
    return namesIn(join(this.#directory, directory)).flatMap((name) => {
      const promised = parseName(name);
      return promised === undefined ? [] : [{ ...promised, directory }];
    });
  }

  #pathOf({ directory, ...promised }: PromisedFile): string {
    return join(this.#directory, directory, nameOf(promised));
  }

  #factsOf(file: PromisedFile): Partial<ReservationFacts> {
    try {
      return JSON.parse(readFileSync(this.#pathOf(file), "utf8")) as ReservationFacts;
    } catch {
      // Released or adopted while we looked.
      return {};
    }
  }

  #whoseOf(file: PromisedFile): Partial<Pick<ReservationFacts, "kind" | "lane">> {
    const { kind, lane } = this.#factsOf(file);
    return { ...(kind === undefined ? {} : { kind }), ...(lane === undefined ? {} : { lane }) };
  }

  #rename(id: string, from: Amounts, to: Amounts): void {
    const path = (amounts: Amounts) => this.#pathOf({ id, amounts, directory: this.#home });
    try {
      renameSync(path(from), path(to));
    } catch (error) {
      throw HoldfastError.from(error);
    }
    this.#ours.set(id, to);
  }

  #remove(file: PromisedFile): void {
    removeFile(this.#pathOf(file));
    // Who needs it makes it again; its process may be one that never will.
    if (file.directory !== this.#home) this.#tidy(file.directory);
  }

  #tidy(directory: string): void {
    try {
      rmdirSync(join(this.#directory, directory));
    } catch {
      // There is more in it, or it is gone.
    }
  }

  /** Whole or not there: the name appears with its text. */
  #place(promised: Promised, facts: ReservationFacts): void {
    const home = join(this.#directory, this.#home);
    const draft = join(home, DRAFT);
    for (let attempt = 0; ; attempt++) {
      try {
        writeFileSync(draft, JSON.stringify(facts), { mode: 0o600 });
        renameSync(draft, join(home, nameOf(promised)));
        this.#ours.set(promised.id, promised.amounts);
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT" || attempt >= MAX_ATTEMPTS) {
          throw HoldfastError.from(error);
        }
        mkdirSync(home, { recursive: true, mode: 0o700 });
      }
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

function removeFile(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw HoldfastError.from(error);
  }
}

export function existsAlready(id: string): HoldfastError {
  return new HoldfastError("sandbox_exists", `there is a sandbox with id ${id} already`);
}

function nothingReserved(id: string): HoldfastError {
  return new HoldfastError("engine_fault", `nothing is reserved for ${id}`);
}

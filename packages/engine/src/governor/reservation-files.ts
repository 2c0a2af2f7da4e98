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
  statSync,
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

interface Ours {
  readonly amounts: Amounts;
  readonly facts: ReservationFacts;
}

interface PromisedFile extends Promised {
  /** Of the process that answers for it. */
  readonly directory: string;
}

export type ReservationFile = Promised & Partial<ReservationFacts>;

const NAME = /^([a-z0-9]{1,64})~(\d{1,16})~(\d{1,16})~(\d{1,16})$/;
const PROCESS = /^(\d{1,10})\.(\d{1,20})\.\d{1,10}$/;
const DRAFT = ".draft";
const MAX_ATTEMPTS = 3;
const MAX_LOOKS = 20;

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
  readonly #ours = new Map<string, Ours>();

  constructor(directory: string, { pid, startTicks }: ProcessIdentity) {
    this.#directory = directory;
    this.#home = `${pid}.${startTicks}.${opened++}`;
  }

  /** What has been promised to us under this id. */
  ours(id: string): Amounts | undefined {
    return this.#ours.get(id)?.amounts;
  }

  /** Puts it down if `fits` agrees with the sum that includes it; else leaves nothing. Refuses a second one under an id. */
  take(id: string, amounts: Amounts, facts: ReservationFacts, fits: (sum: Amounts) => boolean): boolean {
    if (this.#isStillOurs(id)) throw existsAlready(id);
    this.#place({ id, amounts }, facts);
    let isTaken = false;
    try {
      const others = this.#othersForSure();
      if (others.some((each) => each.id === id)) throw existsAlready(id);
      isTaken = fits(this.#sumWith(others));
      return isTaken;
    } finally {
      if (!isTaken) this.release(id);
    }
  }

  /** The same for another amount of something of ours. */
  change(id: string, to: Amounts, fits: (sum: Amounts) => boolean): boolean {
    const from = this.ours(id);
    if (from === undefined) throw nothingReserved(id);
    if (isSame(from, to)) return true;
    this.#rename(id, to);
    let isTaken = false;
    try {
      isTaken = fits(this.#sumWith(this.#othersForSure()));
      return isTaken;
    } finally {
      if (!isTaken) this.#rename(id, from);
    }
  }

  /**
   * What is adopted while we look goes from one directory to another, and may be seen in neither. So we look again until
   * nothing has moved meanwhile, and count whatever we have seen.
   */
  #othersForSure(): Promised[] {
    const seen = new Map<string, Promised>();
    for (let look = 0; look < MAX_LOOKS; look++) {
      const before = this.#stampsOfOthers();
      if (before === "") break;
      for (const each of this.#others()) seen.set(nameOf(each), each);
      // Clocks of older kernels tick slowly: one look is not enough to be sure.
      if (look > 0 && this.#stampsOfOthers() === before) break;
    }
    return [...seen.values()];
  }

  /** Changes when anything in their directories does. */
  #stampsOfOthers(): string {
    const others = this.#processes().filter((each) => each !== this.#home);
    return others.map((each) => `${each} ${this.#stampOf(each)}`).join("\n");
  }

  #stampOf(directory: string): string {
    const status = statSync(join(this.#directory, directory), { bigint: true, throwIfNoEntry: false });
    return String(status?.mtimeNs);
  }

  /** Whoever answers for it. */
  release(id: string): void {
    const ours = this.ours(id);
    if (ours !== undefined) this.#remove({ id, amounts: ours, directory: this.#home });
    else for (const each of this.#others()) if (each.id === id) this.#remove(each);
    this.#ours.delete(id);
    if (this.#ours.size > 0) return;
    this.#tidy(this.#home);
    // The last of all: an engine that goes on leaves no more behind than one that is closed.
    this.#tidy("");
  }

  sum(): Amounts {
    return this.#sumWith(this.#others());
  }

  list(): ReservationFile[] {
    return this.#all().map((each) => ({ id: each.id, amounts: each.amounts, ...this.#factsOf(each) }));
  }

  /**
   * Makes us answer for what another process did, in one step: the file becomes ours with its text, so that it is the same
   * one's as before. If the promise was lost, it is made anew, whatever there is; `asItWas` keeps its size. What cannot be
   * written down now counts all the same, and is written when we next look after things: nobody is ended for that.
   */
  adopt(id: string, amounts: Amounts, facts: ReservationFacts, asItWas: boolean): void {
    const [first, ...more] = this.#all().filter((each) => each.id === id);
    const to = asItWas && first !== undefined && more.length === 0 ? first.amounts : amounts;
    const whose = first === undefined ? {} : this.#whoseOf(first);
    this.#ours.set(id, { amounts: to, facts: { ...facts, ...whose } });
    const isWritten = tryTo(() => {
      if (first === undefined) this.#putDown(id);
      else this.#move(first, { id, amounts: to, directory: this.#home });
    });
    if (!isWritten) return;
    for (const each of more) this.#remove(each);
    if (first !== undefined && first.directory !== this.#home) this.#tidy(first.directory);
  }

  /** The same promise of ours for somebody else: in one step, so that it is always somebody's. */
  handOver(id: string, facts: ReservationFacts): void {
    const amounts = this.ours(id);
    if (amounts === undefined) throw nothingReserved(id);
    this.#place({ id, amounts }, facts);
  }

  /** Removes what nobody answers for any more: its process is gone, and so is (or never was) what it was for. */
  removeStale(isThere: (record: string, id: string) => boolean): string[] {
    this.#restore();
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

  /** What another process has adopted is no longer ours. What is nobody's was lost with its directory, and is ours still. */
  #restore(): void {
    const lost = [...this.#ours.keys()].filter((id) => !this.#isStillOurs(id));
    if (lost.length === 0) return;
    const others = new Set(this.#others().map(({ id }) => id));
    for (const id of lost) {
      if (others.has(id)) this.#ours.delete(id);
      else tryTo(() => this.#putDown(id));
    }
  }

  /** Another process may have adopted it, or taken down what it was for. */
  #isStillOurs(id: string): boolean {
    const amounts = this.ours(id);
    return amounts !== undefined && existsSync(this.#pathOf({ id, amounts, directory: this.#home }));
  }

  #sumWith(others: readonly Promised[]): Amounts {
    let [memoryBytes, pids, diskBytes] = [0, 0, 0];
    const add = (amounts: Amounts) => {
      memoryBytes += amounts.memoryBytes;
      pids += amounts.pids;
      diskBytes += amounts.diskBytes;
    };
    for (const { amounts } of this.#ours.values()) add(amounts);
    for (const { amounts } of others) add(amounts);
    return { memoryBytes, pids, diskBytes };
  }

  #all(): PromisedFile[] {
    const ours = [...this.#ours].map(([id, { amounts }]) => ({ id, amounts, directory: this.#home }));
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

  #rename(id: string, to: Amounts): void {
    const ours = this.#ours.get(id);
    if (ours === undefined) throw nothingReserved(id);
    const directory = this.#home;
    this.#ours.set(id, { ...ours, amounts: to });
    try {
      this.#move({ id, amounts: ours.amounts, directory }, { id, amounts: to, directory });
    } catch (error) {
      this.#ours.set(id, ours);
      throw error;
    }
  }

  /** Under its new name; made anew if the old one was lost. */
  #move(from: PromisedFile, to: PromisedFile): void {
    try {
      this.#inHome(() => renameSync(this.#pathOf(from), this.#pathOf(to)));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw HoldfastError.from(error);
      this.#putDown(to.id);
    }
  }

  #remove(file: PromisedFile): void {
    removeFile(this.#pathOf(file));
    // Who needs it makes it again; its process may be one that never will.
    if (file.directory !== this.#home) this.#tidy(file.directory);
  }

  /** Not if there is more in it. */
  #tidy(directory: string): void {
    tryTo(() => rmdirSync(join(this.#directory, directory)));
  }

  #place({ id, amounts }: Promised, facts: ReservationFacts): void {
    const before = this.#ours.get(id);
    this.#ours.set(id, { amounts, facts });
    try {
      this.#putDown(id);
    } catch (error) {
      if (before === undefined) this.#ours.delete(id);
      else this.#ours.set(id, before);
      throw error;
    }
  }

  /** What we know of it. Whole or not there: the name appears with its text. */
  #putDown(id: string): void {
    const ours = this.#ours.get(id);
    if (ours === undefined) throw nothingReserved(id);
    const path = (name: string) => join(this.#directory, this.#home, name);
    try {
      this.#inHome(() => {
        writeFileSync(path(DRAFT), JSON.stringify(ours.facts), { mode: 0o600 });
        renameSync(path(DRAFT), path(nameOf({ id, amounts: ours.amounts })));
      });
    } catch (error) {
      removeFile(path(DRAFT));
      throw HoldfastError.from(error);
    }
  }

  /** Our directory is made when it is needed; somebody who tidies up may take it away in between. */
  #inHome(work: () => void): void {
    for (let attempt = 0; ; attempt++) {
      try {
        work();
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT" || attempt >= MAX_ATTEMPTS) throw error;
        mkdirSync(join(this.#directory, this.#home), { recursive: true, mode: 0o700 });
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

function tryTo(work: () => void): boolean {
  try {
    work();
    return true;
  } catch {
    return false;
  }
}

export function existsAlready(id: string): HoldfastError {
  return new HoldfastError("sandbox_exists", `there is a sandbox with id ${id} already`);
}

function nothingReserved(id: string): HoldfastError {
  return new HoldfastError("engine_fault", `nothing is reserved for ${id}`);
}

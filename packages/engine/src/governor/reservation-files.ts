/**
 * Who has been promised what, for all processes on this host that make sandboxes below the same cgroup.
 *
 * Nobody locks anything. Whoever wants something first puts the file down, then adds up all files, and takes its own
 * back if the sum is too much. Two at the same moment may both step back, and try again; they can never both stay.
 */
import { HoldfastError } from "@holdfast/protocol";
import type { ProcessIdentity } from "../host/processes.js";
import { type Amounts, isSame, plus } from "./amounts.js";
import { OthersPromises } from "./others-promises.js";
import { OwnPromises } from "./own-promises.js";
import { newHome, type Promised, type PromisedFile, PromiseFiles, type ReservationFacts } from "./promise-files.js";

export type ReservationFile = Promised & Partial<ReservationFacts>;

export class ReservationFiles {
  readonly #files: PromiseFiles;
  readonly #home: string;
  readonly #own: OwnPromises;
  readonly #others: OthersPromises;

  constructor(directory: string, process: ProcessIdentity) {
    this.#files = new PromiseFiles(directory);
    this.#home = newHome(process);
    this.#own = new OwnPromises(this.#files, this.#home);
    this.#others = new OthersPromises(this.#files, this.#home);
  }

  /** What has been promised to us under this id. */
  ours(id: string): Amounts | undefined {
    return this.#own.get(id);
  }

  /** Puts it down if `fits` agrees with the sum that includes it; else leaves nothing. Refuses a second one under an id. */
  take(id: string, amounts: Amounts, facts: ReservationFacts, fits: (sum: Amounts) => boolean): boolean {
    if (this.#own.isWritten(id)) throw existsAlready(id);
    this.#own.place({ id, amounts }, facts);
    let isTaken = false;
    try {
      const others = this.#others.listForSure();
      if (others.some((each) => each.id === id)) throw existsAlready(id);
      isTaken = fits(this.#sumWith(others));
      return isTaken;
    } finally {
      if (!isTaken) this.release(id);
    }
  }

  /** The same for another amount of something of ours. */
  change(id: string, to: Amounts, fits: (sum: Amounts) => boolean): boolean {
    const from = this.#own.require(id);
    if (isSame(from, to)) return true;
    this.#own.rename(id, to);
    let isTaken = false;
    try {
      isTaken = fits(this.#sumWith(this.#others.listForSure()));
      return isTaken;
    } finally {
      if (!isTaken) this.#own.rename(id, from);
    }
  }

  /** Whoever answers for it. */
  release(id: string): void {
    if (this.#own.get(id) !== undefined) this.#own.remove(id);
    else for (const each of this.#others.list()) if (each.id === id) this.#others.remove(each);
    if (!this.#own.isEmpty) return;
    this.#files.tidy(this.#home);
    // The last of all: an engine that goes on leaves no more behind than one that is closed.
    this.#files.tidyAll();
  }

  sum(): Amounts {
    return this.#sumWith(this.#others.list());
  }

  list(): ReservationFile[] {
    return this.#all().map((each) => ({ id: each.id, amounts: each.amounts, ...this.#files.factsOf(each) }));
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
    if (!tryTo(() => this.#own.takeOver(first, { id, amounts: to }, { ...facts, ...whose }))) return;
    for (const each of more) this.#others.remove(each);
    if (first !== undefined && first.directory !== this.#home) this.#files.tidy(first.directory);
  }

  /** The same promise of ours for somebody else: in one step, so that it is always somebody's. */
  handOver(id: string, facts: ReservationFacts): void {
    this.#own.place({ id, amounts: this.#own.require(id) }, facts);
  }

  /** Removes what nobody answers for any more: its process is gone, and so is (or never was) what it was for. */
  removeStale(isThere: (record: string, id: string) => boolean): string[] {
    this.#restore();
    return this.#others.removeOfDead((each) => {
      const { record } = this.#files.factsOf(each);
      // Without a record it was adopted or released while we looked.
      return record === undefined || isThere(record, each.id);
    });
  }

  /** What another process has adopted is no longer ours. What is nobody's was lost with its directory, and is ours still. */
  #restore(): void {
    const lost = this.#own.list().filter(({ id }) => !this.#own.isWritten(id));
    if (lost.length === 0) return;
    const others = new Set(this.#others.list().map(({ id }) => id));
    for (const { id } of lost) {
      if (others.has(id)) this.#own.forget(id);
      else tryTo(() => this.#own.putDown(id));
    }
  }

  #sumWith(others: readonly Promised[]): Amounts {
    return others.reduce((sum, { amounts }) => plus(sum, amounts), this.#own.sum());
  }

  #all(): PromisedFile[] {
    return [...this.#own.list(), ...this.#others.list()];
  }

  #whoseOf(file: PromisedFile): Partial<Pick<ReservationFacts, "kind" | "lane">> {
    const { kind, lane } = this.#files.factsOf(file);
    return { ...(kind === undefined ? {} : { kind }), ...(lane === undefined ? {} : { lane }) };
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

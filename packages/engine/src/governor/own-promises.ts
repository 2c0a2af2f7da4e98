/**
 * What we have been promised. We know it by heart, so that a decision costs a look at the others' promises and not at a
 * thousand of our own, and keep it written down for the others, and for whoever comes after us.
 */
import { existsSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { HoldfastError } from "@holdfast/protocol";
import type { Amounts } from "./amounts.js";
import { DRAFT, type Promised, type PromisedFile, type PromiseFiles, type ReservationFacts } from "./promise-files.js";

interface Own {
  readonly amounts: Amounts;
  readonly facts: ReservationFacts;
}

const MAX_ATTEMPTS = 3;

export class OwnPromises {
  readonly #files: PromiseFiles;
  readonly #home: string;
  readonly #own = new Map<string, Own>();

  constructor(files: PromiseFiles, home: string) {
    this.#files = files;
    this.#home = home;
  }

  get isEmpty(): boolean {
    return this.#own.size === 0;
  }

  get(id: string): Amounts | undefined {
    return this.#own.get(id)?.amounts;
  }

  require(id: string): Amounts {
    return this.#require(id).amounts;
  }

  list(): PromisedFile[] {
    return [...this.#own].map(([id, { amounts }]) => this.#fileOf({ id, amounts }));
  }

  sum(): Amounts {
    let [memoryBytes, pids, diskBytes] = [0, 0, 0];
    for (const { amounts } of this.#own.values()) {
      memoryBytes += amounts.memoryBytes;
      pids += amounts.pids;
      diskBytes += amounts.diskBytes;
    }
    return { memoryBytes, pids, diskBytes };
  }

  /** Puts it down, in the place of what there was under its id. If that fails, all is as it was. */
  place({ id, amounts }: Promised, facts: ReservationFacts): void {
    const before = this.#own.get(id);
    this.#own.set(id, { amounts, facts });
    try {
      this.putDown(id);
    } catch (error) {
      if (before === undefined) this.#own.delete(id);
      else this.#own.set(id, before);
      throw error;
    }
  }

  rename(id: string, to: Amounts): void {
    const own = this.#require(id);
    this.#own.set(id, { ...own, amounts: to });
    try {
      this.#moveHere(this.#fileOf({ id, amounts: own.amounts }), { id, amounts: to });
    } catch (error) {
      this.#own.set(id, own);
      throw error;
    }
  }

  /** Makes a file ours with its text, or a promise that has none. If that fails, it counts all the same. */
  takeOver(from: PromisedFile | undefined, { id, amounts }: Promised, facts: ReservationFacts): void {
    this.#own.set(id, { amounts, facts });
    if (from === undefined) this.putDown(id);
    else this.#moveHere(from, { id, amounts });
  }

  /** What we know of it. Whole or not there: the name appears with its text. */
  putDown(id: string): void {
    const { amounts, facts } = this.#require(id);
    const draft = this.#files.path(this.#home, DRAFT);
    try {
      this.#atHome(() => {
        writeFileSync(draft, JSON.stringify(facts), { mode: 0o600 });
        renameSync(draft, this.#files.pathOf(this.#fileOf({ id, amounts })));
      });
    } catch (error) {
      this.#files.removeDraft(this.#home);
      throw HoldfastError.from(error);
    }
  }

  /** Another process may have adopted it, or taken down what it was for. */
  isWritten(id: string): boolean {
    const amounts = this.get(id);
    return amounts !== undefined && existsSync(this.#files.pathOf(this.#fileOf({ id, amounts })));
  }

  /** It is another's now. */
  forget(id: string): void {
    this.#own.delete(id);
  }

  remove(id: string): void {
    const amounts = this.get(id);
    if (amounts !== undefined) this.#files.remove(this.#fileOf({ id, amounts }));
    this.#own.delete(id);
  }

  #require(id: string): Own {
    const own = this.#own.get(id);
    if (own === undefined) throw new HoldfastError("engine_fault", `nothing is reserved for ${id}`);
    return own;
  }

  #fileOf(promised: Promised): PromisedFile {
    return { ...promised, directory: this.#home };
  }

  /** Under its new name; made anew if the old one was lost. */
  #moveHere(from: PromisedFile, to: Promised): void {
    try {
      this.#atHome(() => renameSync(this.#files.pathOf(from), this.#files.pathOf(this.#fileOf(to))));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw HoldfastError.from(error);
      this.putDown(to.id);
    }
  }

  /** Our directory is made when it is needed; somebody who tidies up may take it away in between. */
  #atHome(work: () => void): void {
    for (let attempt = 0; ; attempt++) {
      try {
        work();
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT" || attempt >= MAX_ATTEMPTS) throw error;
        mkdirSync(this.#files.path(this.#home), { recursive: true, mode: 0o700 });
      }
    }
  }
}

/** What other processes have been promised, read anew each time. */
import { isAlive } from "../host/processes.js";
import { nameOf, type Promised, type PromisedFile, type PromiseFiles } from "./promise-files.js";

const MAX_LOOKS = 20;

export class OthersPromises {
  readonly #files: PromiseFiles;
  readonly #home: string;

  /** `home`: the directory that is not another's. */
  constructor(files: PromiseFiles, home: string) {
    this.#files = files;
    this.#home = home;
  }

  list(): PromisedFile[] {
    return this.#directories().flatMap((directory) => this.#files.in(directory));
  }

  /**
   * What is adopted while we look goes from one directory to another, and may be seen in neither. So we look again until
   * nothing has moved meanwhile, and count whatever we have seen.
   */
  listForSure(): Promised[] {
    const seen = new Map<string, Promised>();
    for (let look = 0; look < MAX_LOOKS; look++) {
      const before = this.#stamps();
      if (before === "") break;
      for (const each of this.list()) seen.set(nameOf(each), each);
      // Clocks of older kernels tick slowly: one look is not enough to be sure.
      if (look > 0 && this.#stamps() === before) break;
    }
    return [...seen.values()];
  }

  /** Removes one, whoever answers for it. */
  remove(file: PromisedFile): void {
    this.#files.remove(file);
    // Who needs it makes it again; its process may be one that never will.
    this.#files.tidy(file.directory);
  }

  /** Removes those of processes that are gone, unless `isWanted`. */
  removeOfDead(isWanted: (file: PromisedFile) => boolean): string[] {
    const removed: string[] = [];
    for (const { directory, process } of this.#files.processes()) {
      if (directory === this.#home || isAlive(process)) continue;
      this.#files.removeDraft(directory);
      for (const each of this.#files.in(directory)) {
        if (isWanted(each)) continue;
        this.remove(each);
        removed.push(each.id);
      }
      this.#files.tidy(directory);
    }
    return removed;
  }

  #directories(): string[] {
    return this.#files
      .processes()
      .map(({ directory }) => directory)
      .filter((directory) => directory !== this.#home);
  }

  /** Changes when anything in their directories does. */
  #stamps(): string {
    return this.#directories()
      .map((each) => `${each} ${this.#files.stampOf(each)}`)
      .join("\n");
  }
}

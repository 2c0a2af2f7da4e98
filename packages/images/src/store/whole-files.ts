/** Files that are there whole or not at all, whoever is killed meanwhile and however many write. */
import { closeSync, fsyncSync, mkdirSync, openSync, readdirSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";
import { errorFromFile, isMissing } from "./file-error.js";
import { isTagOfLiving, tagOfUniqueName, uniqueName } from "./process-tag.js";

/** The directory of a name may be removed as empty by another process at the very moment that it is made. */
const MAX_TRIES = 100;

export class WholeFiles {
  /** Files under way. On the file system of their destinations, so that they can be renamed. */
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  }

  temporaryPath(): string {
    return join(this.#directory, uniqueName());
  }

  /** `durable`: also after a loss of power. Without, such a loss may leave nothing or an empty file. */
  write(path: string, text: string, options: { readonly durable: boolean }): void {
    const fresh = this.temporaryPath();
    try {
      const file = openSync(fresh, "wx", 0o600);
      try {
        const bytes = Buffer.from(text);
        for (let written = 0; written < bytes.length; ) written += writeSync(file, bytes, written);
        if (options.durable) fsyncSync(file);
      } finally {
        closeSync(file);
      }
      this.#place(fresh, path);
      if (options.durable) syncDirectory(dirname(path));
    } catch (error) {
      rmSync(fresh, { force: true });
      throw errorFromFile(error, `writing ${path}`);
    }
  }

  /** Takes it away under its name at once, then removes it, directory or file. */
  discard(path: string): boolean {
    const going = this.temporaryPath();
    try {
      renameSync(path, going);
    } catch (error) {
      if (isMissing(error)) return false;
      throw errorFromFile(error, `removing ${path}`);
    }
    rmSync(going, { recursive: true, force: true });
    return true;
  }

  /** What killed processes have left under way. */
  sweep(): void {
    for (const name of readdirSync(this.#directory)) {
      const tag = tagOfUniqueName(name);
      if (tag === undefined || !isTagOfLiving(tag)) {
        rmSync(join(this.#directory, name), { recursive: true, force: true });
      }
    }
  }

  #place(fresh: string, path: string): void {
    for (let tries = 1; ; tries++) {
      try {
        renameSync(fresh, path);
        return;
      } catch (error) {
        if (!isMissing(error) || tries === MAX_TRIES) throw error;
        mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
      }
    }
  }
}

export function syncDirectory(path: string): void {
  let directory: number;
  try {
    directory = openSync(path, "r");
  } catch (error) {
    // Somebody has removed it, and with it what was to be kept.
    if (isMissing(error)) return;
    throw error;
  }
  try {
    fsyncSync(directory);
  } finally {
    closeSync(directory);
  }
}

/** The names in it; none if it is not there. */
export function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if (isMissing(error)) return [];
    throw errorFromFile(error, `reading ${directory}`);
  }
}

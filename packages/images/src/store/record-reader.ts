/**
 * Reads records and remembers them for as long as their files stay the same. A file that cannot be understood is never an
 * error of the whole: it is reported once and passed on as damaged, with the layers that its text still names, so that
 * nobody takes those for garbage.
 */
import { readFileSync, type Stats, statSync } from "node:fs";
import { join } from "node:path";
import type { LayerId, Log } from "@holdfast/engine";
import { errorFromFile, isMissing } from "./file-error.js";
import { UnknownVersionError } from "./records.js";
import { namesIn } from "./whole-files.js";

interface RecordFile {
  readonly name: string;
  readonly path: string;
  /** When it was written, or marked as used. */
  readonly usedAtMs: number;
}

export type ReadRecord<T extends object> =
  | (RecordFile & { readonly value: T })
  | (RecordFile & {
      readonly value?: undefined;
      /** Why it cannot be understood. */
      readonly problem: string;
      /** Written by a later version of this program, and whole as far as we can tell. */
      readonly isNewer: boolean;
      readonly mentions: readonly LayerId[];
    });

interface Remembered<T extends object> {
  readonly stamp: string;
  readonly record: ReadRecord<T>;
}

const MAX_REMEMBERED = 20_000;

export class RecordReader<T extends object> {
  readonly #parse: (text: string, path: string) => T;
  readonly #what: string;
  readonly #log: Log;
  readonly #remembered = new Map<string, Remembered<T>>();
  readonly #reported = new Set<string>();

  constructor(options: { parse: (text: string, path: string) => T; what: string; log: Log }) {
    this.#parse = options.parse;
    this.#what = options.what;
    this.#log = options.log;
  }

  read(directory: string, name: string): ReadRecord<T> | undefined {
    const path = join(directory, name);
    try {
      const stats = statSync(path);
      // A directory, or whatever else a person may have put there.
      if (!stats.isFile()) return undefined;
      const stamp = stampOf(stats);
      const known = this.#remembered.get(path);
      const record = known?.stamp === stamp ? known.record : this.#understand(name, path, readFileSync(path, "utf8"));
      if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.clear();
      this.#remembered.set(path, { stamp, record });
      if ("problem" in record) this.#report(`${path} ${stamp}`, path, record.problem);
      return { ...record, usedAtMs: stats.mtimeMs };
    } catch (error) {
      this.#remembered.delete(path);
      if (isMissing(error)) return undefined;
      throw errorFromFile(error, `reading ${path}`);
    }
  }

  readAll(directory: string): ReadRecord<T>[] {
    return namesIn(directory).flatMap((name) => this.read(directory, name) ?? []);
  }

  #understand(name: string, path: string, text: string): ReadRecord<T> {
    try {
      return { name, path, usedAtMs: 0, value: this.#parse(text, path) };
    } catch (error) {
      return {
        name,
        path,
        usedAtMs: 0,
        problem: (error as Error).message,
        isNewer: error instanceof UnknownVersionError,
        mentions: [...text.matchAll(/\bl[a-z0-9]{20}\b/g)].map(([id]) => id as LayerId),
      };
    }
  }

  #report(key: string, path: string, problem: string): void {
    if (this.#reported.has(key)) return;
    this.#reported.add(key);
    this.#log.warn({ path, problem }, `${this.#what} cannot be read and is passed over`);
  }
}

/** Files are only ever replaced, never written to: another content is another inode. */
const stampOf = (stats: Stats): string => `${stats.ino} ${stats.size} ${stats.ctimeMs}`;

/**
 * A build's log as files of lines of JSON: `log.ndjson`, then `log.<seq>.ndjson`, each named after its first entry, so that
 * whoever wants it from some entry on need not read it all. The first and the last of them are kept; of a log that is too
 * long the middle goes.
 */
import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { errorFromFile } from "../store/file-error.js";
import { namesIn } from "../store/whole-files.js";
import type { BuildLogEntry } from "../types.js";

const FLUSH_MS = 100;
const FLUSH_BYTES = 64 * 1024;
const TAIL_ENTRIES = 40;
const SEQ_DIGITS = 12;

export interface LogLimits {
  readonly segmentBytes: number;
  readonly headSegments: number;
  readonly tailSegments: number;
}

export const LOG_LIMITS: LogLimits = { segmentBytes: 1024 * 1024, headSegments: 32, tailSegments: 32 };

export interface LogSegment {
  readonly name: string;
  readonly firstSeq: number;
}

/** In order. */
export function logSegments(directory: string): LogSegment[] {
  return namesIn(directory)
    .flatMap((name) => {
      const match = /^log(?:\.(\d+))?\.ndjson$/.exec(name);
      return match === null ? [] : [{ name, firstSeq: Number(match[1] ?? 0) }];
    })
    .sort((one, other) => one.firstSeq - other.firstSeq);
}

export class BuildLog {
  readonly #directory: string;
  readonly #onFlush: () => void;
  readonly #limits: LogLimits;
  readonly #tail: BuildLogEntry[] = [];
  readonly #segments: string[] = [];
  #file: number | undefined;
  #segmentBytes = 0;
  #pending = "";
  #pendingFirst = 0;
  #timer: NodeJS.Timeout | undefined;
  #length = 0;

  constructor(directory: string, options: { readonly onFlush: () => void; readonly limits?: LogLimits }) {
    this.#directory = directory;
    this.#onFlush = options.onFlush;
    this.#limits = options.limits ?? LOG_LIMITS;
  }

  /** How many entries there have been. */
  get length(): number {
    return this.#length;
  }

  append(step: string, stream: BuildLogEntry["stream"], text: string): void {
    const entry: BuildLogEntry = { seq: this.#length++, at: new Date().toISOString(), step, stream, text };
    this.#tail.push(entry);
    if (this.#tail.length > TAIL_ENTRIES) this.#tail.shift();
    if (this.#pending === "") this.#pendingFirst = entry.seq;
    this.#pending += `${JSON.stringify(entry)}\n`;
    if (this.#pending.length >= FLUSH_BYTES) this.flush();
    else this.#timer ??= setTimeout(() => this.#flushLater(), FLUSH_MS);
  }

  /** The last words of a step, the newest at the end. */
  tailOf(step: string): BuildLogEntry[] {
    return this.#tail.filter((entry) => entry.step === step);
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#pending === "") return;
    const bytes = Buffer.from(this.#pending);
    this.#pending = "";
    try {
      const file = this.#fileFor(bytes.length);
      for (let written = 0; written < bytes.length; ) written += writeSync(file, bytes, written);
      this.#segmentBytes += bytes.length;
    } catch (error) {
      throw errorFromFile(error, "writing a build's log");
    }
    this.#onFlush();
  }

  close(): void {
    try {
      this.flush();
    } finally {
      if (this.#file !== undefined) closeSync(this.#file);
      this.#file = undefined;
    }
  }

  #flushLater(): void {
    try {
      this.flush();
    } catch {
      // A full disk: what writes next says so to somebody who can end the build.
    }
  }

  #fileFor(bytes: number): number {
    if (this.#file !== undefined && this.#segmentBytes + bytes <= this.#limits.segmentBytes) return this.#file;
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
    const first = this.#pendingFirst;
    const name = first === 0 ? "log.ndjson" : `log.${String(first).padStart(SEQ_DIGITS, "0")}.ndjson`;
    this.#file = openSync(join(this.#directory, name), "a", 0o600);
    this.#segmentBytes = 0;
    this.#segments.push(name);
    const { headSegments, tailSegments } = this.#limits;
    if (this.#segments.length > headSegments + tailSegments) {
      const [dropped] = this.#segments.splice(headSegments, 1);
      if (dropped !== undefined) rmSync(join(this.#directory, dropped), { force: true });
    }
    return this.#file;
  }
}

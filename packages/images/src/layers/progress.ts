/** How far moving an image has come. */
export interface Progress {
  readonly phase: "spool" | "unpack" | "verify" | "pack" | "write" | "deliver" | "download" | "upload";
  readonly doneBytes: number;
  /** Null where nobody knows before the end. */
  readonly totalBytes: number | null;
  /** For a person: a layer's digest, a file's name. */
  readonly what: string;
}

export type OnProgress = (progress: Progress) => void;

/** Counts bytes and tells about them, at most every so many of them so that telling costs nothing. */
export class ProgressCounter {
  readonly #onProgress: OnProgress | undefined;
  readonly #phase: Progress["phase"];
  readonly #what: string;
  readonly #totalBytes: number | null;
  readonly #everyBytes: number;
  #doneBytes = 0;
  #toldBytes = 0;

  constructor(options: {
    readonly onProgress: OnProgress | undefined;
    readonly phase: Progress["phase"];
    readonly what: string;
    readonly totalBytes: number | null;
    readonly everyBytes?: number;
  }) {
    this.#onProgress = options.onProgress;
    this.#phase = options.phase;
    this.#what = options.what;
    this.#totalBytes = options.totalBytes;
    this.#everyBytes = options.everyBytes ?? 8 * 1024 * 1024;
    this.#tell();
  }

  get doneBytes(): number {
    return this.#doneBytes;
  }

  add(bytes: number): void {
    this.#doneBytes += bytes;
    if (this.#doneBytes - this.#toldBytes >= this.#everyBytes) this.#tell();
  }

  end(): void {
    this.#tell();
  }

  #tell(): void {
    this.#toldBytes = this.#doneBytes;
    this.#onProgress?.({
      phase: this.#phase,
      doneBytes: this.#doneBytes,
      totalBytes: this.#totalBytes,
      what: this.#what,
    });
  }
}

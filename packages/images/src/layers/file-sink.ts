import type { FileHandle } from "node:fs/promises";
import { errorFromFile } from "../store/file-error.js";
import { PIECE_BYTES } from "./file-chunks.js";

/** What lies in memory before the disk is told to begin; otherwise it would idle until the end and then keep us waiting. */
const SYNC_EVERY_BYTES = 32 * 1024 * 1024;

/**
 * Writes a file from front to back in big pieces, one being written while the next is gathered. Two buffers in all, whatever
 * the chunks were; a chunk is the caller's again when `write` has resolved.
 */
export class FileSink {
  readonly #file: FileHandle;
  readonly #what: string;
  readonly #buffers = [Buffer.allocUnsafeSlow(PIECE_BYTES), Buffer.allocUnsafeSlow(PIECE_BYTES)] as const;
  #turn: 0 | 1 = 0;
  #filled = 0;
  #position = 0;
  #writing: Promise<void> = Promise.resolve();
  readonly #onWritten: ((endPosition: number) => void) | undefined;
  #syncAt: number;
  #syncing: Promise<void> | undefined;

  constructor(
    file: FileHandle,
    what: string,
    options: {
      /** It goes again soon, and its content need never reach the disk. */
      readonly isTemporary?: boolean | undefined;
      /** Up to there it can be read from the file now. */
      readonly onWritten?: ((endPosition: number) => void) | undefined;
    } = {},
  ) {
    this.#file = file;
    this.#what = what;
    this.#onWritten = options.onWritten;
    this.#syncAt = options.isTemporary === true ? Number.POSITIVE_INFINITY : SYNC_EVERY_BYTES;
  }

  /** Of all that was given so far. */
  get position(): number {
    return this.#position + this.#filled;
  }

  /** Undefined if there is nothing to wait for. */
  write(chunk: Uint8Array): Promise<void> | undefined {
    const buffer = this.#buffers[this.#turn];
    if (this.#filled + chunk.length >= PIECE_BYTES) return this.#writeLong(chunk);
    buffer.set(chunk, this.#filled);
    this.#filled += chunk.length;
    return undefined;
  }

  async #writeLong(chunk: Uint8Array): Promise<void> {
    for (let offset = 0; offset < chunk.length; ) {
      const taken = Math.min(PIECE_BYTES - this.#filled, chunk.length - offset);
      this.#buffers[this.#turn].set(chunk.subarray(offset, offset + taken), this.#filled);
      this.#filled += taken;
      offset += taken;
      if (this.#filled === PIECE_BYTES) await this.#turnOver();
    }
  }

  async #turnOver(): Promise<void> {
    const piece = this.#buffers[this.#turn].subarray(0, this.#filled);
    const at = this.#position;
    this.#position += this.#filled;
    this.#filled = 0;
    this.#turn = this.#turn === 0 ? 1 : 0;
    const previous = this.#writing;
    this.#writing = previous.then(() => this.#writeOut(piece, at));
    // Told about when the next piece waits for it, or by flush.
    this.#writing.catch(() => undefined);
    await previous;
  }

  async #writeOut(piece: Uint8Array, position: number): Promise<void> {
    try {
      for (let written = 0; written < piece.length; ) {
        const { bytesWritten } = await this.#file.write(piece, written, piece.length - written, position + written);
        written += bytesWritten;
      }
    } catch (error) {
      throw errorFromFile(error, this.#what);
    }
    this.#onWritten?.(position + piece.length);
    if (position >= this.#syncAt && this.#syncing === undefined) {
      this.#syncAt = position + SYNC_EVERY_BYTES;
      // Whether it went well is asked at the end.
      this.#syncing = this.#file
        .datasync()
        .catch(() => undefined)
        .then(() => {
          this.#syncing = undefined;
        });
    }
  }

  /** Everything is in the file, not yet on the disk. */
  async flush(): Promise<void> {
    if (this.#filled > 0) await this.#turnOver();
    await this.#writing;
  }

  /** Waits until nothing is being written, whether or not that went well. For closing the file. */
  async settle(): Promise<void> {
    await this.#writing.catch(() => undefined);
    await this.#syncing;
  }

  /** Goes on from another place: an earlier one, or one behind what somebody else has written. */
  async moveTo(position: number): Promise<void> {
    await this.flush();
    this.#position = position;
  }

  /** Over something written before: for headers that are known only afterwards. */
  async writeAt(bytes: Uint8Array, position: number): Promise<void> {
    await this.flush();
    await this.#writeOut(bytes, position);
  }
}

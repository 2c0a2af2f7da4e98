/** A stream of chunks, read by the number of bytes. What is held is one chunk, whatever is asked for. */
import { HoldfastError } from "@holdfast/protocol";

export class ByteSource {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #rest: Uint8Array = new Uint8Array(0);

  constructor(chunks: AsyncIterable<Uint8Array>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  /** Undefined if the stream ends before the first of them; an error if it ends before the last. */
  async take(length: number): Promise<Buffer | undefined> {
    const taken = Buffer.alloc(length);
    let filled = 0;
    while (filled < length) {
      const chunk = await this.#next(length - filled);
      if (chunk === undefined) {
        if (filled === 0) return undefined;
        throw cutShort();
      }
      taken.set(chunk, filled);
      filled += chunk.length;
    }
    return taken;
  }

  async *stream(length: number): AsyncGenerator<Uint8Array> {
    let left = length;
    while (left > 0) {
      const chunk = await this.#next(left);
      if (chunk === undefined) throw cutShort();
      left -= chunk.length;
      yield chunk;
    }
  }

  async skip(length: number): Promise<void> {
    for await (const _ of this.stream(length)) {
      // Nobody wants it.
    }
  }

  /** Reads to the end, so that whoever writes is not left with a full pipe. */
  async drain(): Promise<void> {
    this.#rest = new Uint8Array(0);
    while ((await this.#chunks.next()).done !== true) {
      // What follows the end of an archive is padding.
    }
  }

  async close(): Promise<void> {
    await this.#chunks.return?.();
  }

  async #next(most: number): Promise<Uint8Array | undefined> {
    while (this.#rest.length === 0) {
      const { done, value } = await this.#chunks.next();
      if (done === true) return undefined;
      this.#rest = value;
    }
    const chunk = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(chunk.length);
    return chunk;
  }
}

function cutShort(): HoldfastError {
  return new HoldfastError("guest_fault", "the archive from the sandbox ends in the middle");
}

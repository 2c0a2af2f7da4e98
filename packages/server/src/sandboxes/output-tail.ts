/** The last bytes of a command's output that passed through us, for whoever asks afterwards what it said. */
export const TAIL_BYTES = 4096;

export class OutputTail {
  #bytes = Buffer.alloc(0);
  /** The offset after the last byte that was seen. */
  #end = 0;

  get end(): number {
    return this.#end;
  }

  get bytes(): Buffer {
    return this.#bytes;
  }

  add(offset: number, bytes: Buffer): void {
    const end = offset + bytes.length;
    if (end <= this.#end) return;
    const fresh = bytes.subarray(Math.max(0, this.#end - offset));
    const before = offset <= this.#end ? this.#bytes : Buffer.alloc(0);
    // A copy: a slice would keep the whole chunk alive.
    this.#bytes = Buffer.concat([before, fresh.subarray(-TAIL_BYTES)]).subarray(-TAIL_BYTES);
    this.#end = end;
  }
}

/** The end of an output: at most so many bytes, however many there are. */
const FIRST_CAPACITY = 4096;

export class OutputTail {
  readonly #maxBytes: number;
  #buffer: Uint8Array;
  #length = 0;
  #truncated = false;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#buffer = new Uint8Array(Math.min(FIRST_CAPACITY, maxBytes * 2));
  }

  /** Whether something is missing from the beginning or on the way. */
  get truncated(): boolean {
    return this.#truncated || this.#length > this.#maxBytes;
  }

  add(bytes: Uint8Array): void {
    const added = bytes.subarray(Math.max(0, bytes.length - this.#maxBytes));
    if (added.length < bytes.length) this.#truncated = true;
    if (this.#length + added.length > this.#buffer.length) this.#makeRoom(added.length);
    this.#buffer.set(added, this.#length);
    this.#length += added.length;
  }

  /** Bytes that nobody has any more. */
  gap(): void {
    this.#truncated = true;
  }

  text(): string {
    let start = Math.max(0, this.#length - this.#maxBytes);
    if (start > 0 || this.#truncated) {
      // A character whose beginning is missing is left out whole.
      for (let skipped = 0; skipped < 3 && ((this.#buffer[start] ?? 0) & 0xc0) === 0x80; skipped += 1) start += 1;
    }
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(
      this.#buffer.subarray(start, Math.max(start, this.#length)),
    );
  }

  /** It holds up to twice what it gives, so that bytes are moved rarely. */
  #makeRoom(bytes: number): void {
    if (this.#length > this.#maxBytes) {
      this.#buffer.copyWithin(0, this.#length - this.#maxBytes, this.#length);
      this.#length = this.#maxBytes;
      this.#truncated = true;
    }
    if (this.#length + bytes <= this.#buffer.length) return;
    const capacity = Math.min(this.#maxBytes * 2, Math.max(this.#length + bytes, this.#buffer.length * 2));
    const larger = new Uint8Array(capacity);
    larger.set(this.#buffer.subarray(0, this.#length));
    this.#buffer = larger;
  }
}

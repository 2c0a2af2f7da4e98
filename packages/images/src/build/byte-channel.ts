/** Bytes from whoever pushes to whoever pulls, one chunk at a time. */
export class ByteChannel implements AsyncIterable<Uint8Array> {
  #chunk: Uint8Array | undefined;
  #state: "open" | "ended" | "failed" | "closed" = "open";
  #error: unknown;
  #wakeReader: (() => void) | undefined;
  #wakeWriter: (() => void) | undefined;

  /** Resolves when the reader has taken it, or will never take anything. */
  async write(bytes: Uint8Array): Promise<void> {
    while (this.#chunk !== undefined && this.#state === "open") await this.#writersTurn();
    if (this.#state !== "open") return;
    this.#chunk = bytes;
    this.#wakeReader?.();
    while (this.#chunk !== undefined && this.#state === "open") await this.#writersTurn();
  }

  end(): void {
    this.#settle("ended");
  }

  fail(error: unknown): void {
    this.#error = error;
    this.#settle("failed");
  }

  /** The reader wants no more. */
  close(): void {
    this.#settle("closed");
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    try {
      for (;;) {
        if (this.#chunk !== undefined) {
          yield this.#chunk;
          // Only now: until the next one is asked for, it is still being used.
          this.#chunk = undefined;
          this.#wakeWriter?.();
        } else if (this.#state === "failed") {
          throw this.#error;
        } else if (this.#state !== "open") {
          return;
        } else {
          await new Promise<void>((resolve) => {
            this.#wakeReader = resolve;
          });
        }
      }
    } finally {
      this.close();
    }
  }

  #writersTurn(): Promise<void> {
    return new Promise((resolve) => {
      this.#wakeWriter = resolve;
    });
  }

  #settle(state: "ended" | "failed" | "closed"): void {
    if (this.#state !== "open") return;
    this.#state = state;
    this.#wakeReader?.();
    this.#wakeWriter?.();
  }
}

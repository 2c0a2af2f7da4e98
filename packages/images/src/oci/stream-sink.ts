import type { Writable } from "node:stream";
import { HoldfastError } from "@holdfast/protocol";

/** Writes to somebody else's stream at their pace, and notices when they are gone. Does not end it. */
export class StreamSink {
  readonly #stream: Writable;
  readonly #signal: AbortSignal | undefined;
  #failure: unknown;
  #reject: ((reason: unknown) => void) | undefined;
  position = 0;

  constructor(stream: Writable, options: { readonly signal?: AbortSignal | undefined } = {}) {
    this.#stream = stream;
    this.#signal = options.signal;
    stream.on("error", this.#fail);
    stream.on("close", this.#onClose);
    this.#signal?.addEventListener("abort", this.#onAbort, { once: true });
  }

  readonly #fail = (reason: unknown): void => {
    this.#failure ??= reason;
    this.#reject?.(this.#failure);
  };
  readonly #onClose = (): void => {
    this.#fail(new HoldfastError("canceled", "whoever was to get the image has gone away"));
  };
  readonly #onAbort = (): void => this.#fail(this.#signal?.reason);

  /** The chunk is the caller's again when it has resolved. */
  write(chunk: Uint8Array): Promise<void> {
    if (this.#stream.destroyed) this.#onClose();
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) return reject(this.#failure);
      if (chunk.length === 0) return resolve();
      this.#reject = reject;
      this.position += chunk.length;
      this.#stream.write(chunk, (error) => {
        if (error === null || error === undefined) resolve();
        else this.#fail(error);
      });
    });
  }

  /** Lets go of the stream. */
  close(): void {
    this.#reject = undefined;
    this.#stream.off("error", this.#fail);
    this.#stream.off("close", this.#onClose);
    this.#signal?.removeEventListener("abort", this.#onAbort);
  }
}

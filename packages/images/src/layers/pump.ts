/**
 * Moving bytes without holding them. A chunk belongs to whoever was given it until they ask for the next one: sources fill
 * the same few buffers again and again, so a chunk counts as delivered only when the stream has let go of it.
 */
import type { Writable } from "node:stream";

/** Resolves when the stream has let go of the chunk. */
export function writeChunk(stream: Writable, chunk: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(chunk, (error) => {
      if (error === null || error === undefined) resolve();
      else reject(error);
    });
  });
}

/** Ends the stream and waits until everything is out. */
export function endStream(stream: Writable): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = (error: Error) => reject(error);
    stream.once("error", fail);
    stream.once("close", () => reject(closedEarly()));
    stream.end(() => {
      stream.off("error", fail);
      resolve();
    });
  });
}

function closedEarly(): Error {
  return Object.assign(new Error("the stream was closed before its end"), { code: "ERR_STREAM_PREMATURE_CLOSE" });
}

export interface PumpOptions {
  readonly onChunk?: ((chunk: Uint8Array) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Everything of the source into the stream, then its end. Rejects with the source's error, the stream's, or the signal's
 * reason; does not wait for a source that has nothing to say when the stream is gone already.
 */
export async function pump(
  source: AsyncIterable<Uint8Array>,
  stream: Writable,
  options: PumpOptions = {},
): Promise<void> {
  const { signal, onChunk } = options;
  signal?.throwIfAborted();
  if (stream.destroyed) throw stream.errored ?? closedEarly();
  const iterator = source[Symbol.asyncIterator]();
  let failure: { readonly reason: unknown } | undefined;
  let interrupt = (_reason: unknown): void => undefined;
  const fail = (reason: unknown): void => {
    failure ??= { reason };
    interrupt(failure.reason);
  };
  const onClose = (): void => fail(closedEarly());
  const onAbort = (): void => fail(signal?.reason);
  /** What may never come: a stream that is destroyed forgets its callbacks. Not Promise.race, which would hold on to each. */
  const orFailure = <T>(promise: Promise<T>): Promise<T> =>
    new Promise((resolve, reject) => {
      interrupt = reject;
      if (failure !== undefined) reject(failure.reason);
      promise.then(resolve, reject);
    });
  stream.on("error", fail);
  stream.on("close", onClose);
  signal?.addEventListener("abort", onAbort, { once: true });
  let finished = false;
  try {
    for (;;) {
      const step = await orFailure(iterator.next());
      if (step.done === true) break;
      // Looked at while it is being written.
      const written = writeChunk(stream, step.value);
      onChunk?.(step.value);
      await orFailure(written);
    }
    finished = true;
    stream.off("close", onClose);
    await orFailure(endStream(stream));
  } finally {
    stream.off("error", fail);
    stream.off("close", onClose);
    signal?.removeEventListener("abort", onAbort);
    // A source that is stuck must not keep us; it cleans up when it comes back.
    if (!finished) Promise.resolve(iterator.return?.()).catch(() => undefined);
  }
}

/** The same chunks; a source that has nothing to say does not keep the reader from hearing the signal. */
export function abortable(
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal | undefined,
): AsyncIterableIterator<Uint8Array> {
  const iterator = source[Symbol.asyncIterator]();
  let interrupt = (_reason: unknown): void => undefined;
  const onAbort = (): void => interrupt(signal?.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  const stop = (): void => {
    signal?.removeEventListener("abort", onAbort);
    // It cleans up when it comes back, which may be never.
    Promise.resolve(iterator.return?.()).catch(() => undefined);
  };
  return {
    next: () =>
      new Promise((resolve, reject) => {
        interrupt = reject;
        if (signal?.aborted === true) reject(signal.reason as Error);
        else
          iterator.next().then((step) => {
            if (step.done === true) signal?.removeEventListener("abort", onAbort);
            resolve(step);
          }, reject);
      }),
    return: async () => {
      stop();
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

/** Reads on without use, so that whoever writes can finish. */
export async function drain(source: AsyncIterable<Uint8Array>, onChunk?: (chunk: Uint8Array) => void): Promise<void> {
  for await (const chunk of source) onChunk?.(chunk);
}

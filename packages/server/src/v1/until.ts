/** Waiting that can be given up. Nothing is left behind on the signals, however long they live. */
import { setMaxListeners } from "node:events";

/** The value, or undefined once one of the signals has aborted. A rejection that comes after that concerns nobody. */
export async function valueUntil<T>(promise: Promise<T>, signals: readonly AbortSignal[]): Promise<T | undefined> {
  // As many wait for one sandbox as it has streams. That is no leak, and no reason for a warning.
  if (signals.length > 0) setMaxListeners(0, ...signals);
  return new Promise((resolve, reject) => {
    const stop = () => settle(() => resolve(undefined));
    const settle = (how: () => void) => {
      for (const signal of signals) signal.removeEventListener("abort", stop);
      how();
    };
    for (const signal of signals) signal.addEventListener("abort", stop, { once: true });
    promise.then(
      (value) => settle(() => resolve(value)),
      (error: unknown) => settle(() => reject(error instanceof Error ? error : new Error(String(error)))),
    );
    if (signals.some((signal) => signal.aborted)) stop();
  });
}

/** The items until one of the signals aborts, also while the source is silent. Leaving it leaves the source. */
export async function* until<T>(source: AsyncIterable<T>, signals: readonly AbortSignal[]): AsyncGenerator<T> {
  const iterator = source[Symbol.asyncIterator]();
  let finished = false;
  try {
    while (!signals.some((signal) => signal.aborted)) {
      const result = await valueUntil(iterator.next(), signals).catch((error: unknown) => {
        finished = true;
        throw error;
      });
      if (result === undefined) return;
      if (result.done === true) {
        finished = true;
        return;
      }
      yield result.value;
    }
  } finally {
    // Not awaited: a generator that waits for its next item would answer only after it.
    if (!finished) void iterator.return?.().catch(() => {});
  }
}

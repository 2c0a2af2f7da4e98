/** One signal for several, by hand: what AbortSignal.any makes is remembered by those it is made of for as long as they live. */
import { setMaxListeners } from "node:events";

export interface LinkedSignal {
  readonly signal: AbortSignal;
  /** When nobody needs it any more. */
  unlink(): void;
}

/** The same for as long as `work` takes. */
export async function withLinkedSignal<T>(
  signals: readonly (AbortSignal | undefined)[],
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { signal, unlink } = linkSignals(signals);
  try {
    return await work(signal);
  } finally {
    unlink();
  }
}

export function linkSignals(signals: readonly (AbortSignal | undefined)[]): LinkedSignal {
  const controller = new AbortController();
  const onAbort = (event: Event) => controller.abort((event.target as AbortSignal).reason);
  const sources = signals.filter((signal) => signal !== undefined);
  for (const source of sources) {
    if (source.aborted) controller.abort(source.reason);
    // However many are under way at once.
    setMaxListeners(0, source);
    source.addEventListener("abort", onAbort, { once: true });
  }
  return {
    signal: controller.signal,
    unlink: () => {
      for (const source of sources) source.removeEventListener("abort", onAbort);
    },
  };
}

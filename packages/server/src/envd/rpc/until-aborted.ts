/**
 * Waits for the work or for the first of the signals, and leaves nothing behind at a signal that outlives it. The work
 * itself is not stopped; whatever becomes of it later is nobody's concern.
 */
export function untilAborted<T>(work: Promise<T>, ...signals: readonly AbortSignal[]): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => settle(() => reject(reasonOf(signals)));
    const settle = (how: () => void) => {
      for (const signal of signals) signal.removeEventListener("abort", onAbort);
      how();
    };
    for (const signal of signals) signal.addEventListener("abort", onAbort);
    work.then(
      (value) => settle(() => resolve(value)),
      (error: unknown) => settle(() => reject(error)),
    );
    if (signals.some((signal) => signal.aborted)) onAbort();
  });
}

function reasonOf(signals: readonly AbortSignal[]): unknown {
  return signals.find((signal) => signal.aborted)?.reason;
}

/** Does the work for every item, so many at a time. The first failure stops the rest, and is thrown when all have stopped. */
export async function runParallel<T, R>(
  items: readonly T[],
  options: { readonly parallel: number; readonly signal?: AbortSignal | undefined },
  work: (item: T, signal: AbortSignal) => Promise<R>,
): Promise<R[]> {
  const stop = new AbortController();
  const signal = options.signal === undefined ? stop.signal : AbortSignal.any([options.signal, stop.signal]);
  const results = new Array<R>(items.length);
  const failures: unknown[] = [];
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < items.length && failures.length === 0) {
      const index = next++;
      try {
        results[index] = await work(items[index] as T, signal);
      } catch (reason) {
        failures.push(reason);
        stop.abort();
      }
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, Math.min(options.parallel, items.length)) }, worker));
  if (failures.length > 0) throw failures[0];
  return results;
}

/** Tells those who wait that something has changed; what it was, they find out for themselves. */
export class Wakes {
  readonly #versions = new Map<string, number>();
  readonly #sleepers = new Map<string, Set<() => void>>();

  /** To be read before looking: what changes after it does not go unnoticed. */
  version(key: string): number {
    return this.#versions.get(key) ?? 0;
  }

  wake(key: string): void {
    this.#versions.set(key, this.version(key) + 1);
    const sleepers = this.#sleepers.get(key);
    this.#sleepers.delete(key);
    for (const wake of sleepers ?? []) wake();
  }

  forget(key: string): void {
    if (!this.#sleepers.has(key)) this.#versions.delete(key);
  }

  /** Until something has changed since that version, but no longer than that. The signal's abort ends it too. */
  async changed(
    key: string,
    since: number,
    options: { readonly atMostMs: number; readonly signal?: AbortSignal | undefined },
  ): Promise<void> {
    if (this.version(key) !== since || options.signal?.aborted === true) return;
    await new Promise<void>((resolve) => {
      const sleepers = this.#sleepers.get(key) ?? new Set();
      this.#sleepers.set(key, sleepers);
      const wake = (): void => {
        clearTimeout(timer);
        options.signal?.removeEventListener("abort", wake);
        sleepers.delete(wake);
        if (sleepers.size === 0 && this.#sleepers.get(key) === sleepers) this.#sleepers.delete(key);
        resolve();
      };
      const timer = setTimeout(wake, options.atMostMs);
      options.signal?.addEventListener("abort", wake, { once: true });
      sleepers.add(wake);
    });
  }
}

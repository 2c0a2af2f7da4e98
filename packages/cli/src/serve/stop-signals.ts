/** The first signal asks for a stop, the second does not wait for it. */
const STOPPING = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
const EXIT_CODES = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

export class StopSignals {
  /** Resolves at the first one. */
  readonly first: Promise<void>;
  readonly #listeners = new Map<(typeof STOPPING)[number], () => void>();

  constructor() {
    this.first = new Promise((resolve) => {
      let stopping = false;
      for (const signal of STOPPING) {
        const listener = (): void => {
          if (stopping) process.exit(EXIT_CODES[signal]);
          stopping = true;
          resolve();
        };
        this.#listeners.set(signal, listener);
        process.on(signal, listener);
      }
    });
  }

  release(): void {
    for (const [signal, listener] of this.#listeners) process.off(signal, listener);
    this.#listeners.clear();
  }
}

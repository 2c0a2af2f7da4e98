/** How many commands are started at once in a sandbox that is throttled. What ran before is not counted, and goes on. */

interface Waiter {
  readonly begin: () => void;
}

export class CommandTurns {
  readonly #most: number;
  readonly #waiting = new Set<Waiter>();
  #begun = 0;

  constructor(options: { readonly most: number }) {
    this.#most = options.most;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Resolves, when its turn has come, to what ends it; undefined if that did not happen in time. */
  async take(waitMs: number): Promise<(() => void) | undefined> {
    if (this.#begun < this.#most) return this.#begin();
    return new Promise((resolve) => {
      const waiter: Waiter = {
        begin: () => {
          clearTimeout(deadline);
          this.#waiting.delete(waiter);
          resolve(this.#begin());
        },
      };
      const deadline = setTimeout(() => {
        this.#waiting.delete(waiter);
        resolve(undefined);
      }, waitMs);
      deadline.unref();
      this.#waiting.add(waiter);
    });
  }

  /** There is no need to wait any more. */
  letAllBegin(): void {
    for (const waiter of [...this.#waiting]) waiter.begin();
  }

  #begin(): () => void {
    this.#begun += 1;
    let over = false;
    return () => {
      if (over) return;
      over = true;
      this.#begun -= 1;
      // In the order in which they came.
      const [next] = this.#waiting;
      if (this.#begun < this.#most) next?.begin();
    };
  }
}

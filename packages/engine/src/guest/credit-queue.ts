/**
 * Between a guest that pushes and a reader that pulls: what has arrived and is not read yet. It cannot outgrow the credit
 * given to the guest; reading an item gives its credit back.
 */
export class CreditQueue<T> implements AsyncIterableIterator<T> {
  readonly #items: { readonly item: T; readonly cost: number }[] = [];
  readonly #onConsumed: (item: T, cost: number) => void;
  readonly #onAbandoned: () => void;
  #waiting: ((result: IteratorResult<T>) => void) | undefined;
  #rejectWaiting: ((reason: Error) => void) | undefined;
  #finished: { readonly error?: Error } | undefined;

  constructor(onConsumed: (item: T, cost: number) => void, onAbandoned: () => void) {
    this.#onConsumed = onConsumed;
    this.#onAbandoned = onAbandoned;
  }

  push(item: T, cost: number): void {
    if (this.#finished !== undefined) return;
    if (this.#waiting !== undefined) {
      const resolve = this.#waiting;
      this.#waiting = undefined;
      this.#onConsumed(item, cost);
      resolve({ done: false, value: item });
      return;
    }
    this.#items.push({ item, cost });
  }

  /** No more items; those that wait are still read. */
  finish(error?: Error): void {
    if (this.#finished !== undefined) return;
    this.#finished = error === undefined ? {} : { error };
    const resolve = this.#waiting;
    this.#waiting = undefined;
    if (resolve === undefined) return;
    if (error === undefined) resolve({ done: true, value: undefined });
    else this.#rejectWaiting?.(error);
  }

  next(): Promise<IteratorResult<T>> {
    const first = this.#items.shift();
    if (first !== undefined) {
      this.#onConsumed(first.item, first.cost);
      return Promise.resolve({ done: false, value: first.item });
    }
    if (this.#finished !== undefined) {
      return this.#finished.error === undefined
        ? Promise.resolve({ done: true, value: undefined })
        : Promise.reject(this.#finished.error);
    }
    return new Promise((resolve, reject) => {
      this.#waiting = resolve;
      this.#rejectWaiting = reject;
    });
  }

  /** The reader has had enough (a `break` out of `for await`). */
  return(): Promise<IteratorResult<T>> {
    this.#items.length = 0;
    if (this.#finished === undefined) {
      this.#finished = {};
      this.#onAbandoned();
    }
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

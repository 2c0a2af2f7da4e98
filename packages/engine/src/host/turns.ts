/** What is done to one thing, one after the other, in the order in which it was asked for. */
export class Turns {
  #last: Promise<unknown> = Promise.resolve();

  take<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(work);
    this.#last = turn.catch(() => {});
    return turn;
  }

  /** Resolves when what has been asked for so far is done. */
  async idle(): Promise<void> {
    await this.#last;
  }
}

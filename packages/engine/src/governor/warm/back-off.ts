/** What failed is tried again later, and ever later: nothing that cannot be made is made again and again. */
const FIRST_MS = 1000;
const LONGEST_MS = 300_000;

export class BackOff {
  readonly #failures = new Map<string, { readonly count: number; readonly until: number }>();

  failed(shape: string, now: number): void {
    const count = (this.#failures.get(shape)?.count ?? 0) + 1;
    this.#failures.set(shape, { count, until: now + Math.min(LONGEST_MS, FIRST_MS * 2 ** (count - 1)) });
  }

  succeeded(shape: string): void {
    this.#failures.delete(shape);
  }

  isOver(shape: string, now: number): boolean {
    const failure = this.#failures.get(shape);
    return failure === undefined || now >= failure.until;
  }

  /** Forgets shapes that nobody asks for any more. */
  keepOnly(isWanted: (shape: string) => boolean): void {
    for (const shape of this.#failures.keys()) if (!isWanted(shape)) this.#failures.delete(shape);
  }
}

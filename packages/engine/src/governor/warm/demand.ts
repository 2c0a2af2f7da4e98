/** How often each shape was asked for lately. Bounded: whoever asks for ever new shapes makes us forget old ones, not grow. */
const MOST_SHAPES = 64;
const MOST_TIMES = 64;

export interface Asked {
  readonly shape: string;
  readonly times: number;
}

export class Demand {
  readonly #windowMs: number;
  /** The last asked for last. */
  readonly #asked = new Map<string, number[]>();

  constructor(options: { readonly windowMs: number }) {
    this.#windowMs = options.windowMs;
  }

  ask(shape: string, now: number): void {
    const times = [...this.#within(shape, now), now].slice(-MOST_TIMES);
    this.#asked.delete(shape);
    this.#asked.set(shape, times);
    if (this.#asked.size <= MOST_SHAPES) return;
    const [oldest] = this.#asked.keys();
    if (oldest !== undefined) this.#asked.delete(oldest);
  }

  forget(shape: string): void {
    this.#asked.delete(shape);
  }

  times(shape: string, now: number): number {
    return this.#within(shape, now).length;
  }

  /** The most asked for first; of two alike the one asked for last. */
  ranked(now: number): Asked[] {
    const asked: Asked[] = [];
    for (const shape of [...this.#asked.keys()].reverse()) {
      const times = this.times(shape, now);
      if (times === 0) this.#asked.delete(shape);
      else asked.push({ shape, times });
    }
    return asked.sort((a, b) => b.times - a.times);
  }

  #within(shape: string, now: number): number[] {
    return (this.#asked.get(shape) ?? []).filter((at) => now - at < this.#windowMs);
  }
}

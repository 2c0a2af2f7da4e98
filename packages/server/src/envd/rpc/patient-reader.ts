/**
 * Takes turns between what a source brings, a clock and signals that say to stop. The source is asked for an item only
 * when its reader asks: one item at a time is on its way, however slow the reader is.
 *
 * A stop lets go of the source at once, not when the reader asks next: a reader whose client has stopped reading and then
 * gone away may never ask again, and the source must not wait for it. Nothing is left behind at the signals, which may
 * live far longer.
 */
export type Turn<T> =
  | { readonly kind: "item"; readonly item: T }
  | { readonly kind: "end" }
  /** Nothing came for a while. */
  | { readonly kind: "idle" }
  | { readonly kind: "stopped"; readonly by: AbortSignal };

type Arrival<T> = { readonly result: IteratorResult<T> } | { readonly error: unknown };

export class PatientReader<T> {
  readonly #source: AsyncIterator<T>;
  readonly #stops: readonly AbortSignal[];
  readonly #release: () => void;
  readonly #timer: NodeJS.Timeout;
  #closed = false;
  #asked = false;
  #arrival: Arrival<T> | undefined;
  #idle = false;
  #wake: () => void = () => {};
  readonly #onStop = () => {
    this.close();
    this.#wake();
  };

  constructor(
    source: AsyncIterable<T>,
    options: {
      readonly idleMs: number;
      readonly stops: readonly AbortSignal[];
      /** Called once: makes the source end, also while it is waiting for something to bring. */
      readonly release: () => void;
    },
  ) {
    this.#source = source[Symbol.asyncIterator]();
    this.#stops = options.stops;
    this.#release = options.release;
    for (const stop of this.#stops) stop.addEventListener("abort", this.#onStop);
    this.#timer = setTimeout(() => {
      this.#idle = true;
      this.#wake();
    }, options.idleMs);
    this.#timer.unref();
    if (this.#stops.some((stop) => stop.aborted)) this.close();
  }

  async next(): Promise<Turn<T>> {
    for (;;) {
      const by = this.#stops.find((stop) => stop.aborted);
      if (by !== undefined) return { kind: "stopped", by };
      this.#ask();
      if (this.#arrival !== undefined) return this.#take(this.#arrival);
      if (this.#idle) {
        this.#rewind();
        return { kind: "idle" };
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Lets go of the source and of the signals. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#timer);
    for (const stop of this.#stops) stop.removeEventListener("abort", this.#onStop);
    this.#release();
    // A source that fails while it is being left has nobody to tell.
    this.#source.return?.().catch(() => {});
  }

  #ask(): void {
    if (this.#asked) return;
    this.#asked = true;
    const arrive = (arrival: Arrival<T>) => {
      this.#arrival = arrival;
      this.#wake();
    };
    this.#source.next().then(
      (result) => arrive({ result }),
      (error: unknown) => arrive({ error }),
    );
  }

  #take(arrival: Arrival<T>): Turn<T> {
    if ("error" in arrival) throw arrival.error;
    if (arrival.result.done === true) return { kind: "end" };
    this.#arrival = undefined;
    this.#asked = false;
    this.#rewind();
    return { kind: "item", item: arrival.result.value };
  }

  #rewind(): void {
    this.#idle = false;
    this.#timer.refresh();
  }
}

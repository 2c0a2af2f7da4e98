/** Changes of one sandbox's life: one after the other, and what others find of it meanwhile. */
import { Turns } from "@holdfast/engine";

/** What is going on right now, if anything. */
export type Transition = "pausing" | "resuming" | "ending";

export class LifeTurns {
  readonly #requireAlive: () => void;
  readonly #turns = new Turns();
  #transition: Transition | undefined;

  /** `requireAlive` throws if it has ended: nothing but its end is begun while it ends, and nothing at all after that. */
  constructor(requireAlive: () => void) {
    this.#requireAlive = requireAlive;
  }

  get transition(): Transition | undefined {
    return this.#transition;
  }

  get isEnding(): boolean {
    return this.#transition === "ending";
  }

  /** Resolves when all is over that has been begun by now. Never rejects. */
  settled(): Promise<void> {
    return this.#turns.idle();
  }

  /** From here on it is not found by any request, whatever is still going on with it. */
  end<T>(work: () => Promise<T>): Promise<T> {
    this.#transition = "ending";
    return this.#turns.take(work);
  }

  /** It could not be ended: it is as before, and can be asked to end again. */
  takeBackEnd(): void {
    this.#transition = undefined;
  }

  /** `transition` says what others find meanwhile. */
  take<T>(transition: Transition | undefined, work: () => Promise<T>): Promise<T> {
    return this.#turns.take(async () => {
      this.#requireAlive();
      this.#transition = transition;
      try {
        return await work();
      } finally {
        if (this.#transition === transition) this.#transition = undefined;
      }
    });
  }
}

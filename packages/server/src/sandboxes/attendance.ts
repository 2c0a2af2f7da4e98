/** Who still wants something that is being made: when the last one has gone, and nobody has come back in time, it is given up. */
import { setMaxListeners } from "node:events";

export class Attendance {
  readonly #comeBackMs: number;
  readonly #onForsaken: () => void;
  readonly #leave = new Map<AbortSignal, () => void>();
  #stays = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: { readonly comeBackMs: number; readonly onForsaken: () => void }) {
    this.#comeBackMs = options.comeBackMs;
    this.#onForsaken = options.onForsaken;
  }

  /** Until the signal says that they have gone; without one they stay. */
  attend(signal: AbortSignal | undefined): void {
    clearTimeout(this.#timer);
    if (signal === undefined) {
      this.#stays = true;
      return;
    }
    const leave = () => {
      this.#leave.delete(signal);
      this.#lookAround();
    };
    this.#leave.set(signal, leave);
    setMaxListeners(0, signal);
    signal.addEventListener("abort", leave, { once: true });
    if (signal.aborted) leave();
  }

  /** It is made, or has come to nothing. */
  end(): void {
    clearTimeout(this.#timer);
    this.#stays = true;
    for (const [signal, leave] of this.#leave) signal.removeEventListener("abort", leave);
    this.#leave.clear();
  }

  #lookAround(): void {
    if (this.#stays || this.#leave.size > 0) return;
    clearTimeout(this.#timer);
    if (this.#comeBackMs === 0) this.#onForsaken();
    else this.#timer = setTimeout(this.#onForsaken, this.#comeBackMs).unref();
  }
}

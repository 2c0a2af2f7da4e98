/** setTimeout's own limit. Longer lives are measured in stages. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Ends a life at its hour, however far off that is. */
export class WallTimer {
  readonly #onOver: () => void;
  readonly #endsAtMs: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(endsAtMs: number, onOver: () => void) {
    this.#endsAtMs = endsAtMs;
    this.#onOver = onOver;
    this.#arm();
  }

  clear(): void {
    clearTimeout(this.#timer);
  }

  #arm(): void {
    const leftMs = Math.max(0, this.#endsAtMs - Date.now());
    const onStage = () => (leftMs > MAX_TIMER_MS ? this.#arm() : this.#onOver());
    this.#timer = setTimeout(onStage, Math.min(leftMs, MAX_TIMER_MS)).unref();
  }
}

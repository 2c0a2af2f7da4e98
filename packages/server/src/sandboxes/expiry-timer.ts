/** Calls back at a time that may be months away. */

/** setTimeout's own limit. Longer times are measured in stages. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export class ExpiryTimer {
  #timer: NodeJS.Timeout | undefined;

  /** Instead of what was set before. */
  set(at: Date, onTime: () => void): void {
    this.clear();
    const leftMs = Math.max(0, at.getTime() - Date.now());
    const next = leftMs > MAX_TIMER_MS ? () => this.set(at, onTime) : onTime;
    this.#timer = setTimeout(next, Math.min(leftMs, MAX_TIMER_MS));
    this.#timer.unref();
  }

  clear(): void {
    clearTimeout(this.#timer);
  }
}

/** How often, and after how long, something is tried again. */
import { setTimeout as sleep } from "node:timers/promises";
import { HoldfastError } from "@holdfast/protocol";

export interface RetryOptions {
  readonly attempts?: number | undefined;
  readonly baseMs?: number | undefined;
}

const ATTEMPTS = 5;
const BASE_MS = 500;
const LONGEST_MS = 15_000;
/** A registry that asks for more patience than this is not waited for. */
export const LONGEST_RETRY_AFTER_MS = 120_000;

export class Retries {
  readonly #attempts: number;
  readonly #baseMs: number;
  #failed = 0;

  constructor(options: RetryOptions = {}) {
    this.#attempts = options.attempts ?? ATTEMPTS;
    this.#baseMs = options.baseMs ?? BASE_MS;
  }

  /** Something went forward: what failed before does not count any more. */
  reset(): void {
    this.#failed = 0;
  }

  /** Waits until it is time to try again; false if it has been tried often enough. */
  async again(options: {
    readonly afterMs?: number | undefined;
    readonly signal?: AbortSignal | undefined;
  }): Promise<boolean> {
    this.#failed++;
    if (this.#failed >= this.#attempts || (options.afterMs ?? 0) > LONGEST_RETRY_AFTER_MS) return false;
    const backoffMs = Math.min(LONGEST_MS, this.#baseMs * 2 ** (this.#failed - 1)) * (0.75 + Math.random() / 2);
    try {
      await sleep(options.afterMs ?? backoffMs, undefined, { signal: options.signal });
    } catch {
      // Nothing but the signal ends a sleep.
      throw new HoldfastError("canceled", "the operation was canceled");
    }
    return true;
  }
}

/** `Retry-After`: seconds, or a date. */
export function parseRetryAfterMs(header: string | undefined, nowMs: number): number | undefined {
  if (header === undefined) return undefined;
  if (/^\d{1,9}$/.test(header)) return Number(header) * 1000;
  // Node's own parser takes nearly anything for a date.
  const at = /^[A-Z][a-z]{2}, .* GMT$/.test(header) ? Date.parse(header) : Number.NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, at - nowMs);
}

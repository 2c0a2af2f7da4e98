/** How long to wait before the next try, and when to stop trying. */
import { HoldfastError } from "@holdfast/protocol";

/** When and how often a call is tried again. */
export interface RetryOptions {
  /** How often a call is tried at most. Default 4. */
  readonly attempts?: number | undefined;
  /** The first wait; each further one is twice as long. Default 100. */
  readonly minDelayMs?: number | undefined;
  /** The longest wait. Default 2,000. */
  readonly maxDelayMs?: number | undefined;
  /** How long a stream that broke off tries to come back before it fails. Default 60,000. */
  readonly reconnectMs?: number | undefined;
}

export type Retry = { readonly [K in keyof RetryOptions]-?: NonNullable<RetryOptions[K]> };

export function retryFrom(options: RetryOptions = {}): Retry {
  return {
    attempts: options.attempts ?? 4,
    minDelayMs: options.minDelayMs ?? 100,
    maxDelayMs: options.maxDelayMs ?? 2000,
    reconnectMs: options.reconnectMs ?? 60_000,
  };
}

export function canceled(signal: AbortSignal): HoldfastError {
  return new HoldfastError("canceled", "you canceled it", { cause: signal.reason });
}

/** Rejects with `canceled` if the signal aborts first. */
export async function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const finish = (settle: () => void) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      settle();
    };
    const onAbort = () => finish(() => reject(canceled(signal as AbortSignal)));
    const timer = setTimeout(() => finish(resolve), ms);
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted) onAbort();
  });
}

/** Half of the wait is chance: many clients of one server do not come back all at once. */
export function delayBefore(retry: Retry, failures: number): number {
  const full = Math.min(retry.maxDelayMs, retry.minDelayMs * 2 ** (failures - 1));
  return full / 2 + Math.random() * (full / 2);
}

/** A connection that stood so long was a good one, even if nothing was said on it. */
const STOOD_MS = 5000;

/** The waits of a stream that comes back. Each success starts the count anew. */
export class Reconnects {
  readonly #retry: Retry;
  readonly #signal: AbortSignal | undefined;
  #failures = 0;
  #failingSince: number | undefined;
  #connectedAt: number | undefined;

  constructor(retry: Retry, signal: AbortSignal | undefined) {
    this.#retry = retry;
    this.#signal = signal;
  }

  /** The server answered; whether that is worth anything is seen later. */
  connected(): void {
    this.#connectedAt = Date.now();
  }

  succeeded(): void {
    this.#failures = 0;
    this.#failingSince = undefined;
  }

  /** Waits for the next try; throws the failure if there have been enough. */
  async wait(failure: HoldfastError): Promise<void> {
    const now = Date.now();
    if (this.#signal?.aborted) throw canceled(this.#signal);
    if (this.#connectedAt !== undefined && now - this.#connectedAt > STOOD_MS) this.succeeded();
    this.#connectedAt = undefined;
    this.#failingSince ??= now;
    if (now - this.#failingSince > this.#retry.reconnectMs) throw failure;
    this.#failures += 1;
    await sleep(delayBefore(this.#retry, this.#failures), this.#signal);
  }
}

const PASSING: ReadonlySet<string> = new Set(["server_unreachable", "server_stopping", "sandbox_busy", "rate_limited"]);

/** Whether it is worth coming back with the same cursor. */
export function isPassing(error: HoldfastError): boolean {
  return PASSING.has(error.code);
}

/**
 * How often each may ask: a bucket of tokens that refills steadily. After a quiet time two seconds' worth may come at
 * once, and never fewer than ten: an SDK opens with a handful of requests however low the rate.
 */

interface Bucket {
  tokens: number;
  atMs: number;
}

const MIN_BURST = 10;
const BURST_SECONDS = 2;
const MAX_BUCKETS = 10_000;

export class RateLimiter {
  readonly #now: () => number;
  readonly #maxBuckets: number;
  /** The longest unused first. */
  readonly #buckets = new Map<string, Bucket>();

  constructor(options: { readonly now: () => number; readonly maxBuckets?: number }) {
    this.#now = options.now;
    this.#maxBuckets = options.maxBuckets ?? MAX_BUCKETS;
  }

  get size(): number {
    return this.#buckets.size;
  }

  /** Takes a token and returns 0, or takes none and returns the milliseconds until there will be one. */
  take(name: string, ratePerSecond: number): number {
    const burst = Math.max(MIN_BURST, BURST_SECONDS * ratePerSecond);
    const nowMs = this.#now();
    const bucket = this.#buckets.get(name) ?? { tokens: burst, atMs: nowMs };
    // A clock that was set back must not take tokens away.
    const elapsedMs = Math.max(0, nowMs - bucket.atMs);
    bucket.tokens = Math.min(burst, bucket.tokens + (elapsedMs / 1000) * ratePerSecond);
    bucket.atMs = nowMs;
    this.#buckets.delete(name);
    this.#buckets.set(name, bucket);
    this.#forgetOldest();
    if (bucket.tokens >= 1) {
      bucket.tokens -= 1;
      return 0;
    }
    return Math.max(1, Math.ceil(((1 - bucket.tokens) / ratePerSecond) * 1000));
  }

  #forgetOldest(): void {
    if (this.#buckets.size <= this.#maxBuckets) return;
    const oldest = this.#buckets.keys().next();
    if (oldest.done !== true) this.#buckets.delete(oldest.value);
  }
}

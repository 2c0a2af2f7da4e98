/** API keys: made, recognised, counted. */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { Caller } from "../sandboxes/types.js";
import type { ApiKey, KeyLimits, Store } from "../store/store.js";
import { RateLimiter } from "./rate-limiter.js";

export interface KeyRing {
  /** `unauthenticated` if it is wrong or revoked, `rate_limited` (details.retryAfterSeconds) if it asks too often. */
  authenticate(secret: string): Promise<Caller>;
  /** The secret is in the answer and nowhere else. */
  create(name: string, limits: KeyLimits): Promise<{ readonly key: ApiKey; readonly secret: string }>;
  list(): Promise<ApiKey[]>;
  /** False if there is no such key or it was revoked before. */
  revoke(id: string): Promise<boolean>;
}

export interface KeyRingOptions {
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

/** E2B's SDKs accept nothing but this prefix and hex digits. */
const SECRET = /^e2b_[0-9a-f]{40}$/;
const SECRET_LENGTH = 44;
const MAX_NAME_LENGTH = 100;
const CONTROL = /\p{Cc}|\p{Surrogate}/u;

function hashOf(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}

/** The same words whatever was wrong with it. */
function unauthenticated(): HoldfastError {
  return new HoldfastError("unauthenticated", "the API key is not valid", {
    hint: "It is wrong or was revoked. `holdfast key list` shows the keys there are, `holdfast key create` makes one.",
  });
}

function validateName(name: unknown): asserts name is string {
  if (typeof name !== "string" || name === "" || name.length > MAX_NAME_LENGTH || CONTROL.test(name)) {
    throw invalidArgument("name", name, `1 to ${MAX_NAME_LENGTH} characters, none of them control characters`);
  }
}

function validateLimits(limits: KeyLimits): void {
  for (const field of ["sandboxes", "memoryBytes"] as const) {
    const value = limits[field];
    if (value !== null && (!Number.isSafeInteger(value) || value < 0)) {
      throw invalidArgument(`limits.${field}`, value, "a whole number from 0, or null for no limit");
    }
  }
  const rate = limits.requestsPerSecond;
  if (rate !== null && !(Number.isFinite(rate) && rate >= 0.01 && rate <= 1e6)) {
    throw invalidArgument("limits.requestsPerSecond", rate, "a number from 0.01 to 1000000, or null for no limit");
  }
}

class StoredKeyRing implements KeyRing {
  readonly #store: Store;
  readonly #now: () => number;
  readonly #rates: RateLimiter;

  constructor(store: Store, now: () => number) {
    this.#store = store;
    this.#now = now;
    this.#rates = new RateLimiter({ now });
  }

  async authenticate(secret: unknown): Promise<Caller> {
    // The length first: whoever sends megabytes pays for them, we do not.
    if (typeof secret !== "string" || secret.length !== SECRET_LENGTH || !SECRET.test(secret)) throw unauthenticated();
    const hash = hashOf(secret);
    // Asked for each time: it is one look into an index, and a key that was revoked by another process is out at once.
    const key = await this.#store.keys.findByHash(hash);
    // How far the index compared tells nothing: nobody can choose a hash. What decides is compared in constant time.
    if (key === undefined || !timingSafeEqual(Buffer.from(key.secretHash, "hex"), Buffer.from(hash, "hex"))) {
      throw unauthenticated();
    }
    if (key.revokedAt !== null) throw unauthenticated();
    this.#requireRate(key);
    return { kind: "key", keyId: key.id, limits: key.limits };
  }

  async create(name: string, limits: KeyLimits): Promise<{ readonly key: ApiKey; readonly secret: string }> {
    validateName(name);
    validateLimits(limits);
    const secret = `e2b_${randomBytes(20).toString("hex")}`;
    const key: ApiKey = {
      id: `k${randomBytes(6).toString("hex")}`,
      name,
      secretHash: hashOf(secret),
      hint: `${secret.slice(0, 8)}…${secret.slice(-4)}`,
      createdAt: new Date(this.#now()),
      revokedAt: null,
      limits: {
        sandboxes: limits.sandboxes,
        memoryBytes: limits.memoryBytes,
        requestsPerSecond: limits.requestsPerSecond,
      },
    };
    await this.#store.keys.insert(key);
    return { key, secret };
  }

  list(): Promise<ApiKey[]> {
    return this.#store.keys.list();
  }

  revoke(id: string): Promise<boolean> {
    return this.#store.keys.revoke(id, new Date(this.#now()));
  }

  #requireRate(key: ApiKey): void {
    const requestsPerSecond = key.limits.requestsPerSecond;
    if (requestsPerSecond === null) return;
    const waitMs = this.#rates.take(key.id, requestsPerSecond);
    if (waitMs === 0) return;
    const retryAfterSeconds = Math.max(1, Math.ceil(waitMs / 1000));
    throw new HoldfastError("rate_limited", `this key may make ${requestsPerSecond} requests a second`, {
      hint: `Wait ${retryAfterSeconds} s, or ask for a key with a higher limit.`,
      details: { retryAfterSeconds, requestsPerSecond, keyId: key.id },
    });
  }
}

export function createKeyRing(store: Store, options: KeyRingOptions = {}): KeyRing {
  return new StoredKeyRing(store, options.now ?? Date.now);
}

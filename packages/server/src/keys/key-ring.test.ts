import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openSqliteStore } from "../store/sqlite/open-sqlite-store.js";
import type { KeyLimits, Store } from "../store/store.js";
import { createKeyRing, type KeyRing } from "./key-ring.js";

const NO_LIMITS: KeyLimits = { sandboxes: null, memoryBytes: null, requestsPerSecond: null };

let directory: string;
let store: Store;
let keys: KeyRing;
let nowMs = Date.UTC(2026, 0, 1);

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "holdfast-keys-"));
  store = await openSqliteStore(join(directory, "holdfast.db"));
  keys = createKeyRing(store, { now: () => nowMs });
});

afterEach(async () => {
  await store.close();
  await rm(directory, { recursive: true, force: true });
});

async function refusal(attempt: Promise<unknown>): Promise<HoldfastError> {
  const error: unknown = await attempt.catch((reason: unknown) => reason);
  if (!(error instanceof HoldfastError)) throw new Error("it was let in");
  return error;
}

test("a new key is let in with its limits, and only its hash is stored", async () => {
  const limits = { sandboxes: 3, memoryBytes: 2 ** 40, requestsPerSecond: 100 };
  const { key, secret } = await keys.create("for the tests", limits);
  expect(secret).toMatch(/^e2b_[0-9a-f]{40}$/);
  expect(key).toMatchObject({ name: "for the tests", limits, revokedAt: null, createdAt: new Date(nowMs) });
  expect(key.id).toMatch(/^k[0-9a-f]{12}$/);
  expect(key.hint).toBe(`${secret.slice(0, 8)}…${secret.slice(-4)}`);
  expect(await keys.authenticate(secret)).toEqual({ kind: "key", keyId: key.id, limits });
  expect(await keys.list()).toEqual([key]);
  expect(JSON.stringify(await keys.list())).not.toContain(secret.slice(4));
});

test("a wrong, malformed or huge secret is refused in the same words, which do not hold it", async () => {
  const { secret } = await keys.create("a", NO_LIMITS);
  const wrong: unknown[] = [
    "",
    "e2b_",
    secret.slice(0, -1),
    `${secret}0`,
    `${secret}\n`,
    `${secret.slice(0, -1)}\n`,
    secret.toUpperCase(),
    ` ${secret.slice(0, -1)}`,
    `e2b_${"0".repeat(40)}`,
    `E2B_${secret.slice(4)}`,
    `e2b_${"\0".repeat(40)}`,
    "x".repeat(10_000_000),
    undefined,
    null,
    44,
    {},
    [secret],
    { length: 44 },
  ];
  const first = await refusal(keys.authenticate(""));
  for (const value of wrong) {
    const error = await refusal(keys.authenticate(value as string));
    expect(error.toJSON()).toEqual(first.toJSON());
    expect(error.code).toBe("unauthenticated");
  }
});

test("a revoked key is refused at once, also when another process revokes it", async () => {
  const first = await keys.create("a", NO_LIMITS);
  const second = await keys.create("b", NO_LIMITS);
  await keys.authenticate(first.secret);
  await keys.authenticate(second.secret);
  expect(await keys.revoke(first.key.id)).toBe(true);
  expect(await keys.revoke(first.key.id)).toBe(false);
  expect((await refusal(keys.authenticate(first.secret))).code).toBe("unauthenticated");
  const other = await openSqliteStore(join(directory, "holdfast.db"));
  expect(await createKeyRing(other).revoke(second.key.id)).toBe(true);
  await other.close();
  expect((await refusal(keys.authenticate(second.secret))).code).toBe("unauthenticated");
});

test("a key that asks too often is told how long to wait, and others are not held up", async () => {
  const { secret, key } = await keys.create("a", { ...NO_LIMITS, requestsPerSecond: 0.5 });
  const other = await keys.create("b", { ...NO_LIMITS, requestsPerSecond: 0.5 });
  for (let index = 0; index < 10; index++) await keys.authenticate(secret);
  const error = await refusal(keys.authenticate(secret));
  expect(error.code).toBe("rate_limited");
  expect(error.details).toEqual({ retryAfterSeconds: 2, requestsPerSecond: 0.5, keyId: key.id });
  await keys.authenticate(other.secret);
  nowMs += 2000;
  await keys.authenticate(secret);
  await refusal(keys.authenticate(secret));
});

test("the wait is at least a second, however high the rate", async () => {
  const { secret } = await keys.create("a", { ...NO_LIMITS, requestsPerSecond: 100 });
  for (let index = 0; index < 200; index++) await keys.authenticate(secret);
  expect((await refusal(keys.authenticate(secret))).details.retryAfterSeconds).toBe(1);
});

test("new limits count from the next request on", async () => {
  const { secret, key } = await keys.create("a", { ...NO_LIMITS, requestsPerSecond: 0.1 });
  for (let index = 0; index < 10; index++) await keys.authenticate(secret);
  await refusal(keys.authenticate(secret));
  await store.keys.setLimits(key.id, { ...NO_LIMITS, sandboxes: 1 });
  expect(await keys.authenticate(secret)).toMatchObject({ limits: { sandboxes: 1, requestsPerSecond: null } });
});

test("names and limits that make no sense are refused by name", async () => {
  for (const name of ["", "a\nb", "a\0b", "\ud800", "x".repeat(101), 5 as unknown as string])
    expect((await refusal(keys.create(name, NO_LIMITS))).details.field).toBe("name");
  const wrong: [keyof KeyLimits, number][] = [
    ["sandboxes", -1],
    ["sandboxes", 1.5],
    ["memoryBytes", Number.NaN],
    ["requestsPerSecond", 0],
    ["requestsPerSecond", Number.POSITIVE_INFINITY],
  ];
  for (const [field, value] of wrong)
    expect((await refusal(keys.create("a", { ...NO_LIMITS, [field]: value }))).details.field).toBe(`limits.${field}`);
  expect(await keys.list()).toEqual([]);
});

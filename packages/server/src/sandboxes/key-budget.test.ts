import { expect, test } from "vitest";
import { KeyBudget } from "./key-budget.js";
import type { Caller } from "./types.js";

const MIB = 1024 * 1024;
const caller = (sandboxes: number | null, memoryMib: number | null): Caller => ({
  kind: "key",
  keyId: "k1",
  limits: {
    sandboxes,
    memoryBytes: memoryMib === null ? null : memoryMib * MIB,
    requestsPerSecond: null,
  },
});

test("refuses one sandbox more than the key may have, with both numbers and a time to come back", () => {
  const budget = new KeyBudget();
  budget.take(caller(2, null), "k1", MIB);
  budget.take(caller(2, null), "k1", MIB);
  expect(() => budget.take(caller(2, null), "k1", MIB)).toThrow(/may have 2 sandboxes at once, and has 2/);
  try {
    budget.take(caller(2, null), "k1", MIB);
  } catch (error) {
    expect(error).toMatchObject({ code: "limit_reached", details: { retryAfterSeconds: 5 } });
  }
});

test("a place that was freed can be taken again", () => {
  const budget = new KeyBudget();
  budget.take(caller(1, 64), "k1", 64 * MIB);
  budget.free("k1", 64 * MIB);
  expect(() => budget.take(caller(1, 64), "k1", 64 * MIB)).not.toThrow();
});

test("refuses memory above the key's, when created and when resized, and a refusal takes nothing", () => {
  const budget = new KeyBudget();
  budget.take(caller(null, 100), "k1", 60 * MIB);
  expect(() => budget.take(caller(null, 100), "k1", 60 * MIB)).toThrow(/100 MiB of memory together/);
  expect(() => budget.change(caller(null, 100), "k1", 41 * MIB)).toThrow(/41 MiB more/);
  expect(() => budget.change(caller(null, 100), "k1", 40 * MIB)).not.toThrow();
});

test("one key's use is not another's, and the operator has no limit", () => {
  const budget = new KeyBudget();
  budget.take(caller(1, null), "k1", MIB);
  expect(() => budget.take(caller(1, null), "k2", MIB)).not.toThrow();
  for (let i = 0; i < 10; i += 1) budget.take({ kind: "operator" }, "operator", MIB);
});

import { expect, test } from "vitest";
import { CommandTurns } from "./command-turns.js";

const LONG_MS = 60_000;

async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  const nothing = Symbol("nothing");
  return (await Promise.race([promise, new Promise((resolve) => setImmediate(resolve, nothing))])) !== nothing;
}

test("so many begin at once, and others when one of those is over, in the order in which they came", async () => {
  const turns = new CommandTurns({ most: 2 });
  const [first, second] = [await turns.take(LONG_MS), await turns.take(LONG_MS)];
  const third = turns.take(LONG_MS);
  const fourth = turns.take(LONG_MS);
  expect(await isSettled(third)).toBe(false);
  first?.();
  expect(await isSettled(third)).toBe(true);
  expect(await isSettled(fourth)).toBe(false);
  second?.();
  expect(await fourth).toBeDefined();
  expect(turns.waiting).toBe(0);
});

test("an end that is told twice counts once", async () => {
  const turns = new CommandTurns({ most: 1 });
  const first = await turns.take(LONG_MS);
  const second = turns.take(LONG_MS);
  const third = turns.take(LONG_MS);
  first?.();
  first?.();
  expect(await isSettled(second)).toBe(true);
  expect(await isSettled(third)).toBe(false);
  turns.letAllBegin();
  expect(await third).toBeDefined();
});

test("whoever's turn does not come in time gets none, and takes nobody else's", async () => {
  const turns = new CommandTurns({ most: 1 });
  const first = await turns.take(LONG_MS);
  expect(await turns.take(0)).toBeUndefined();
  first?.();
  expect(await turns.take(0)).toBeDefined();
});

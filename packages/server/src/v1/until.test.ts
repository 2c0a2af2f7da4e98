import { describe, expect, test } from "vitest";
import { until, valueUntil } from "./until.js";

const never = new Promise<never>(() => {});

function source(items: readonly number[], log: string[]): AsyncIterable<number> {
  let index = 0;
  return {
    [Symbol.asyncIterator]: () => ({
      next: async () => {
        const value = items[index++];
        return value === undefined ? never : { done: false, value };
      },
      return: async () => {
        log.push("left");
        return { done: true, value: undefined };
      },
    }),
  };
}

describe("until", () => {
  test("ends when a signal aborts while the source is silent, and leaves it", async () => {
    const log: string[] = [];
    const leaving = new AbortController();
    const seen: number[] = [];
    for await (const item of until(source([1, 2], log), [new AbortController().signal, leaving.signal])) {
      seen.push(item);
      if (item === 2) setTimeout(() => leaving.abort(), 1);
    }
    expect([seen, log]).toEqual([[1, 2], ["left"]]);
  });

  test("asks for nothing after the signal", async () => {
    const log: string[] = [];
    for await (const _ of until(source([1], log), [AbortSignal.abort()])) log.push("item");
    expect(log).toEqual(["left"]);
  });

  test("ends with its source and fails with it", async () => {
    async function* broken(): AsyncGenerator<number> {
      yield 1;
      throw new Error("broken");
    }
    const seen: number[] = [];
    const reading = (async () => {
      for await (const item of until(broken(), [])) seen.push(item);
    })();
    await expect(reading).rejects.toThrow("broken");
    expect(seen).toEqual([1]);
  });
});

describe("a value", () => {
  test("is waited for until a signal aborts", async () => {
    const leaving = new AbortController();
    setTimeout(() => leaving.abort(), 1);
    expect(await valueUntil(never, [leaving.signal])).toBeUndefined();
    expect(await valueUntil(Promise.resolve(1), [new AbortController().signal])).toBe(1);
  });

  test("that fails after the signal bothers nobody", async () => {
    const late = new Promise((_resolve, reject) => setTimeout(() => reject(new Error("late")), 5));
    expect(await valueUntil(late, [AbortSignal.abort()])).toBeUndefined();
    await new Promise((resolve) => setTimeout(resolve, 10));
  });
});

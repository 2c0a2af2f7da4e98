import { getEventListeners } from "node:events";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { PatientReader } from "./patient-reader.js";

const IDLE_MS = 1000;

/** Brings what it is given, when it is given. */
class Source implements AsyncIterableIterator<number> {
  asked = 0;
  returned = false;
  #resolve: (result: IteratorResult<number>) => void = () => {};

  next(): Promise<IteratorResult<number>> {
    this.asked += 1;
    return new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }
  return(): Promise<IteratorResult<number>> {
    this.returned = true;
    return Promise.resolve({ done: true, value: undefined });
  }
  bring(value: number): void {
    this.#resolve({ done: false, value });
  }
  end(): void {
    this.#resolve({ done: true, value: undefined });
  }
  [Symbol.asyncIterator](): this {
    return this;
  }
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function open() {
  const source = new Source();
  const stop = new AbortController();
  const release = vi.fn();
  const reader = new PatientReader(source, { idleMs: IDLE_MS, stops: [stop.signal], release });
  return { source, stop, release, reader };
}

describe("a patient reader", () => {
  test("asks for nothing before it is asked, and for one item at a time", async () => {
    const { source, reader } = open();
    expect(source.asked).toBe(0);
    const turn = reader.next();
    source.bring(1);
    expect(await turn).toEqual({ kind: "item", item: 1 });
    expect(source.asked).toBe(1);
  });

  test("says when nothing came for a while, and still takes what comes then", async () => {
    const { source, reader } = open();
    const idle = reader.next();
    await vi.advanceTimersByTimeAsync(IDLE_MS);
    expect(await idle).toEqual({ kind: "idle" });
    const turn = reader.next();
    source.bring(2);
    expect(await turn).toEqual({ kind: "item", item: 2 });
    expect(source.asked).toBe(1);
  });

  test("counts the quiet time from the last item", async () => {
    const { source, reader } = open();
    const first = reader.next();
    await vi.advanceTimersByTimeAsync(IDLE_MS - 1);
    source.bring(1);
    await first;
    const second = reader.next();
    await vi.advanceTimersByTimeAsync(IDLE_MS - 1);
    source.bring(2);
    expect(await second).toEqual({ kind: "item", item: 2 });
  });

  test("ends with its source", async () => {
    const { source, reader } = open();
    const turn = reader.next();
    source.end();
    expect(await turn).toEqual({ kind: "end" });
    expect(await reader.next()).toEqual({ kind: "end" });
  });

  test("lets go at once when it is stopped, also if nobody ever asks again", () => {
    const { source, stop, release } = open();
    stop.abort();
    expect(release).toHaveBeenCalledOnce();
    expect(source.returned).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
    expect(getEventListeners(stop.signal, "abort")).toEqual([]);
  });

  test("wakes whoever waits when it is stopped", async () => {
    const { stop, reader } = open();
    const turn = reader.next();
    stop.abort();
    expect(await turn).toMatchObject({ kind: "stopped" });
    expect(await reader.next()).toMatchObject({ kind: "stopped" });
  });

  test("leaves nothing at a signal that outlives it", () => {
    const { stop, release, reader } = open();
    reader.close();
    reader.close();
    expect(release).toHaveBeenCalledOnce();
    expect(getEventListeners(stop.signal, "abort")).toEqual([]);
  });
});

import { describe, expect, test } from "vitest";
import { PATIENCE_MS, type Waiter, WaitingLine } from "./waiting-line.js";

interface Named extends Waiter {
  readonly name: string;
  readonly size: number;
}

const waiter = (lane: string, name: string, options: { size?: number; since?: number } = {}): Named => ({
  lane,
  name,
  size: options.size ?? 1,
  since: options.since ?? 0,
});

/** Lets in as much as there is room for, and says who it was. */
function serve(line: WaitingLine<Named>, room: number, now = 0): string[] {
  const admitted: string[] = [];
  let left = room;
  line.serve((candidate) => {
    if (candidate.size > left) return false;
    left -= candidate.size;
    admitted.push(candidate.name);
    return true;
  }, now);
  return admitted;
}

function lineOf(...waiters: Named[]): WaitingLine<Named> {
  const line = new WaitingLine<Named>();
  for (const each of waiters) line.add(each);
  return line;
}

describe("a waiting line", () => {
  test("serves one lane in the order of arrival", () => {
    const line = lineOf(waiter("a", "a1"), waiter("a", "a2"), waiter("a", "a3"));
    expect(serve(line, 2)).toEqual(["a1", "a2"]);
    expect(serve(line, 2)).toEqual(["a3"]);
    expect(line.length).toBe(0);
  });

  test("lets lanes take turns, however many wait in one of them", () => {
    const many = Array.from({ length: 100 }, (_, index) => waiter("a", `a${index}`));
    const line = lineOf(...many, waiter("b", "b0"), waiter("c", "c0"));
    expect(serve(line, 4)).toEqual(["a0", "b0", "c0", "a1"]);
  });

  test("remembers whose turn it was", () => {
    const line = lineOf(waiter("a", "a0"), waiter("a", "a1"), waiter("b", "b0"), waiter("b", "b1"));
    expect(serve(line, 1)).toEqual(["a0"]);
    expect(serve(line, 1)).toEqual(["b0"]);
    expect(serve(line, 1)).toEqual(["a1"]);
    expect(serve(line, 1)).toEqual(["b1"]);
  });

  test("numbers the places in the order of the turns", () => {
    const line = lineOf(waiter("a", "a0"), waiter("a", "a1"), waiter("a", "a2"), waiter("b", "b0"));
    expect(line.inOrder().map(({ name }) => name)).toEqual(["a0", "b0", "a1", "a2"]);
  });

  test("lets small ones of other lanes pass a big one for a while, and then no more", () => {
    const line = lineOf(waiter("a", "big", { size: 10 }), waiter("b", "b0"), waiter("b", "b1"));
    expect(serve(line, 1)).toEqual(["b0"]);
    expect(serve(line, 1, PATIENCE_MS)).toEqual([]);
    expect(serve(line, 11, PATIENCE_MS)).toEqual(["big", "b1"]);
  });

  test("never lets anybody pass within a lane", () => {
    const line = lineOf(waiter("a", "big", { size: 10 }), waiter("a", "small"));
    expect(serve(line, 5)).toEqual([]);
  });

  test("serves the one that has waited longest first when patience is over", () => {
    const line = lineOf(
      waiter("a", "a0", { since: 1000 }),
      waiter("b", "b0", { since: 500, size: 2 }),
      waiter("c", "c0", { since: PATIENCE_MS }),
    );
    expect(serve(line, 1, PATIENCE_MS + 1000)).toEqual([]);
    expect(serve(line, 3, PATIENCE_MS + 1000)).toEqual(["b0", "a0"]);
  });

  test("serves the urgent first, and lets nobody pass them", () => {
    const urgent = { ...waiter("a", "urgent", { size: 5 }), urgent: true };
    const line = lineOf(waiter("a", "a0"), waiter("b", "b0"), urgent);
    expect(line.inOrder().map(({ name }) => name)).toEqual(["urgent", "a0", "b0"]);
    expect(serve(line, 2)).toEqual([]);
    expect(serve(line, 6)).toEqual(["urgent", "a0"]);
    expect(serve(line, 1)).toEqual(["b0"]);
  });

  test("forgets who went away, and their lane", () => {
    const a0 = waiter("a", "a0");
    const line = lineOf(a0, waiter("b", "b0"));
    expect(line.remove(a0)).toBe(true);
    expect(line.remove(a0)).toBe(false);
    expect(line.inOrder().map(({ name }) => name)).toEqual(["b0"]);
  });
});

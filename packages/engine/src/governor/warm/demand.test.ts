import { describe, expect, test } from "vitest";
import { BackOff } from "./back-off.js";
import { Demand } from "./demand.js";
import { targetsOf } from "./targets.js";

describe("demand", () => {
  test("counts what was asked for within the window, and forgets the rest", () => {
    const demand = new Demand({ windowMs: 100 });
    demand.ask("a", 0);
    demand.ask("a", 50);
    expect(demand.times("a", 60)).toBe(2);
    expect(demand.times("a", 100)).toBe(1);
    expect(demand.ranked(150)).toEqual([]);
  });

  test("ranks by how often, then by how lately", () => {
    const demand = new Demand({ windowMs: 1000 });
    for (const shape of ["a", "b", "c", "b", "a"]) demand.ask(shape, 0);
    expect(demand.ranked(1).map(({ shape }) => shape)).toEqual(["a", "b", "c"]);
  });

  test("stays bounded, whoever asks for what", () => {
    const demand = new Demand({ windowMs: 1_000_000 });
    for (let index = 0; index < 10_000; index++) demand.ask(`shape ${index}`, index);
    expect(demand.ranked(10_000)).toHaveLength(64);
    for (let index = 0; index < 10_000; index++) demand.ask("one", index);
    expect(demand.times("one", 10_000)).toBe(64);
  });
});

describe("targets", () => {
  const bounds = { perShape: 2, total: 4 };

  test("are no more than were asked for", () => {
    expect(targetsOf([{ shape: "a", times: 1 }], bounds)).toEqual(new Map([["a", 1]]));
    expect(targetsOf([{ shape: "a", times: 9 }], bounds)).toEqual(new Map([["a", 2]]));
    expect(targetsOf([], bounds)).toEqual(new Map());
  });

  test("give every shape one before any has two, within the total", () => {
    const ranked = ["a", "b", "c"].map((shape) => ({ shape, times: 5 }));
    expect(targetsOf(ranked, bounds)).toEqual(
      new Map([
        ["a", 2],
        ["b", 1],
        ["c", 1],
      ]),
    );
    expect(targetsOf(ranked, { perShape: 5, total: 2 })).toEqual(
      new Map([
        ["a", 1],
        ["b", 1],
      ]),
    );
  });

  test("are none when it is switched off", () => {
    expect(targetsOf([{ shape: "a", times: 5 }], { perShape: 0, total: 8 })).toEqual(new Map());
    expect(targetsOf([{ shape: "a", times: 5 }], { perShape: 2, total: 0 })).toEqual(new Map());
  });
});

describe("backing off", () => {
  test("doubles with every failure up to a bound, and ends with a success", () => {
    const backOff = new BackOff();
    const waits = Array.from({ length: 12 }, () => {
      backOff.failed("a", 0);
      let wait = 1;
      while (!backOff.isOver("a", wait)) wait += 1;
      return wait;
    });
    expect(waits.slice(0, 4)).toEqual([1000, 2000, 4000, 8000]);
    expect(waits.at(-1)).toBe(300_000);
    expect(backOff.isOver("b", 0)).toBe(true);
    backOff.succeeded("a");
    expect(backOff.isOver("a", 0)).toBe(true);
  });
});

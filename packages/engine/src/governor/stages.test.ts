import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Crossing, Stages } from "./stages.js";

type Name = "calm" | "low" | "middle" | "high";
const HOLD_MS = 1000;
const RULES = [
  { name: "low", enter: 60, leave: 55 },
  { name: "middle", enter: 80, leave: 75 },
  { name: "high", enter: 90, leave: 85 },
] as const;

const create = (holdMs = HOLD_MS): Stages<Name> => new Stages<Name>({ calm: "calm", rules: RULES, holdMs });

function play(stages: Stages<Name>, values: readonly number[], stepMs = 100): Crossing<Name>[] {
  return values.flatMap((value, index) => stages.observe(value, index * stepMs) ?? []);
}

describe("stages", () => {
  test("are entered at once, one event for each crossing", () => {
    const stages = create();
    expect(play(stages, [10, 59, 60, 70, 80, 90]).map(({ from, to }) => `${from}>${to}`)).toEqual([
      "calm>low",
      "low>middle",
      "middle>high",
    ]);
    expect(stages.stage).toBe("high");
  });

  test("passed several at a time are told in order", () => {
    const stages = create(0);
    expect(stages.observe(95, 0)).toEqual({
      from: "calm",
      to: "high",
      direction: "up",
      passed: ["low", "middle", "high"],
      value: 95,
    });
    expect(stages.observe(1, 1)).toEqual({
      from: "high",
      to: "calm",
      direction: "down",
      passed: ["high", "middle", "low"],
      value: 1,
    });
  });

  test("are left only below where they were entered, and after a while", () => {
    const stages = create();
    stages.observe(60, 0);
    expect(stages.observe(56, 5000)).toBeUndefined();
    expect(stages.observe(54, 6000)).toBeUndefined();
    expect(stages.observe(54, 6999)).toBeUndefined();
    expect(stages.observe(54, 7000)).toMatchObject({ from: "low", to: "calm" });
  });

  test("begin to count the while anew when it was not below all the time", () => {
    const stages = create();
    stages.observe(60, 0);
    stages.observe(50, 100);
    stages.observe(58, 900);
    expect(stages.observe(50, 1200)).toBeUndefined();
    expect(stages.observe(50, 2200)).toMatchObject({ to: "calm" });
  });

  test("are left no further than the highest value of the while allows", () => {
    const stages = create();
    stages.observe(95, 0);
    stages.observe(76, 100);
    stages.observe(10, 600);
    expect(stages.observe(10, 1100)).toMatchObject({ from: "high", to: "middle", passed: ["high"] });
    expect(stages.observe(10, 2000)).toBeUndefined();
    expect(stages.observe(10, 3000)).toMatchObject({ from: "middle", to: "calm", passed: ["middle", "low"] });
  });

  test("ignore what is no number", () => {
    const stages = create();
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      expect(stages.observe(value, 0)).toBeUndefined();
    }
    expect(stages.stage).toBe("calm");
  });

  test("know whether they are at least as bad as one", () => {
    const stages = create();
    stages.observe(81, 0);
    expect((["calm", "low", "middle", "high"] as const).map((name) => stages.isAtLeast(name))).toEqual([
      true,
      true,
      true,
      false,
    ]);
  });

  test("that make no sense are refused", () => {
    const make = (rules: readonly { name: Name; enter: number; leave: number }[]) => () =>
      new Stages<Name>({ calm: "calm", rules, holdMs: 0 });
    expect(make([{ name: "low", enter: 5, leave: 5 }])).toThrow(RangeError);
    expect(
      make([
        { name: "low", enter: 5, leave: 4 },
        { name: "high", enter: 5, leave: 4 },
      ]),
    ).toThrow(RangeError);
  });
});

const values = fc.array(fc.double({ min: 0, max: 100, noNaN: true }), { maxLength: 200 });

describe("whatever the usage does", () => {
  test("each crossing goes on from where the last one led, and names what lies between", () => {
    fc.assert(
      fc.property(values, fc.nat({ max: 3000 }), (usage, holdMs) => {
        const stages = create(holdMs);
        const names: Name[] = ["calm", ...RULES.map(({ name }) => name)];
        let at: Name = "calm";
        for (const { from, to, direction, passed } of play(stages, usage)) {
          expect(from).toBe(at);
          const [low, high] = [names.indexOf(from), names.indexOf(to)].sort((a, b) => a - b) as [number, number];
          const between = names.slice(low + 1, high + 1);
          expect(passed).toEqual(direction === "up" ? between : between.reverse());
          expect(passed.length).toBeGreaterThan(0);
          at = to;
        }
        expect(stages.stage).toBe(at);
      }),
    );
  });

  test("fluttering around a threshold, closer than the distance between in and out, crosses it once", () => {
    const threshold = fc.constantFrom(...RULES);
    const flutter = fc.array(fc.double({ min: -4.9, max: 4.9, noNaN: true }), { minLength: 1, maxLength: 200 });
    fc.assert(
      fc.property(threshold, flutter, ({ name, enter }, noise) => {
        const crossings = play(
          create(0),
          noise.map((by) => enter + by),
        );
        expect(crossings.filter(({ passed }) => passed.includes(name)).length).toBeLessThanOrEqual(1);
        expect(crossings.every(({ direction }) => direction === "up")).toBe(true);
      }),
    );
  });

  test("fluttering quicker than the while, however far, crosses each threshold once", () => {
    const pairs = fc.array(fc.tuple(fc.double({ min: 0, max: 100, noNaN: true }), fc.constant(99)), { minLength: 1 });
    fc.assert(
      fc.property(pairs, (usage) => {
        const crossings = play(create(), usage.flat());
        for (const { name } of RULES) {
          expect(crossings.filter(({ passed }) => passed.includes(name)).length).toBe(1);
        }
      }),
    );
  });

  test("what stays calm for long enough ends calm, in one step", () => {
    fc.assert(
      fc.property(values, (usage) => {
        const stages = create();
        play(stages, usage);
        const was = stages.stage;
        const startMs = usage.length * 100;
        const down = [0, HOLD_MS, 2 * HOLD_MS].flatMap((ms) => stages.observe(0, startMs + ms) ?? []);
        expect(stages.stage).toBe("calm");
        expect(down.length).toBeLessThanOrEqual(was === "calm" ? 0 : 2);
      }),
    );
  });
});

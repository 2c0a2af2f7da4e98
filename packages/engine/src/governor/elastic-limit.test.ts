import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { nearMark } from "../cgroups/hold.js";
import { growthSteps, shrunkLimit } from "./elastic-limit.js";

const MIB = 1024 * 1024;
const size = fc.integer({ min: 8 * MIB, max: 64 * 1024 * MIB });

describe("growth", () => {
  test("is by as much again, then by less if there is no room for that", () => {
    expect(growthSteps(256 * MIB, 1024 * MIB)).toEqual([512 * MIB, 320 * MIB, 288 * MIB, 272 * MIB]);
  });

  test("reaches 600 MiB from 128 in a handful of steps", () => {
    let limit = 128 * MIB;
    let steps = 0;
    for (; limit < 620 * MIB; steps++) limit = growthSteps(limit, 1024 * MIB)[0] ?? 0;
    expect(steps).toBe(3);
  });

  test("ends at the ceiling", () => {
    expect(growthSteps(1000 * MIB, 1024 * MIB)).toEqual([1024 * MIB, 1008 * MIB + 8 * MIB].slice(0, 1));
    expect(growthSteps(1024 * MIB, 1024 * MIB)).toEqual([]);
  });

  test("is always more than there was and never more than the ceiling", () => {
    fc.assert(
      fc.property(size, size, (limit, ceiling) => {
        for (const step of growthSteps(limit, ceiling)) {
          expect(step).toBeGreaterThan(limit);
          expect(step).toBeLessThanOrEqual(ceiling);
        }
        expect(growthSteps(limit, ceiling).length > 0).toBe(ceiling > limit);
      }),
    );
  });
});

describe("shrinking", () => {
  test("leaves the working set and a margin", () => {
    expect(shrunkLimit({ limitBytes: 1024 * MIB, startBytes: 128 * MIB, workingSetBytes: 256 * MIB })).toBe(416 * MIB);
  });

  test("does not go below the start, and does not bother for little", () => {
    expect(shrunkLimit({ limitBytes: 1024 * MIB, startBytes: 512 * MIB, workingSetBytes: MIB })).toBe(512 * MIB);
    expect(shrunkLimit({ limitBytes: 512 * MIB, startBytes: 128 * MIB, workingSetBytes: 330 * MIB })).toBeUndefined();
  });

  test("never holds what it has just let go", () => {
    fc.assert(
      fc.property(size, size, size, (limitBytes, startBytes, workingSetBytes) => {
        const shrunk = shrunkLimit({ limitBytes, startBytes, workingSetBytes });
        if (shrunk === undefined) return;
        expect(shrunk).toBeLessThan(limitBytes);
        expect(shrunk).toBeGreaterThanOrEqual(startBytes);
        expect(shrunk).toBeGreaterThan(workingSetBytes);
      }),
    );
  });

  test("never leads to what would be raised again at once", () => {
    fc.assert(
      fc.property(size, fc.integer({ min: 0, max: 60 * 1024 * MIB }), (startBytes, workingSetBytes) => {
        const shrunk = shrunkLimit({ limitBytes: 128 * 1024 * MIB, startBytes, workingSetBytes });
        if (shrunk !== undefined) expect(nearMark(shrunk)).toBeGreaterThan(workingSetBytes);
      }),
    );
  });
});

import { describe, expect, it } from "vitest";
import type { ImageRecord } from "../types.js";
import { planSandbox } from "./plan-sandbox.js";

const MIB = 1024 * 1024;
const DEFAULTS = { memoryBytes: 128 * MIB, memoryMaxBytes: 512 * MIB };

function image(facts: { floorMb?: number; startPeakMb?: number; limitMb?: number } = {}): ImageRecord {
  const { floorMb, startPeakMb, limitMb } = facts;
  return {
    layers: [],
    below: null,
    disk: null,
    config: { env: {}, user: null, workdir: null },
    floor:
      floorMb === undefined
        ? null
        : {
            memoryBytes: floorMb * MIB,
            startPeakBytes: startPeakMb === undefined ? null : startPeakMb * MIB,
            readyMs: null,
          },
    limits: limitMb === undefined ? {} : { memoryBytes: limitMb * MIB },
  } as unknown as ImageRecord;
}

function memory(of: ImageRecord, request: Parameters<typeof planSandbox>[1]): [number, number | undefined] {
  const { limits } = planSandbox(of, request).spec as { limits: { memoryBytes: number; memoryMaxBytes?: number } };
  return [limits.memoryBytes / MIB, limits.memoryMaxBytes === undefined ? undefined : limits.memoryMaxBytes / MIB];
}

describe("the memory of a sandbox of an image", () => {
  it.each([
    ["without a floor is the default, growing", image(), { defaults: DEFAULTS }, [128, 512]],
    [
      "without a floor is the template's",
      image(),
      { defaults: { ...DEFAULTS, memoryMaxBytes: 2048 * MIB } },
      [128, 2048],
    ],
    ["is the floor if that is more", image({ floorMb: 1024 }), { defaults: DEFAULTS }, [128, 1024]],
    [
      "is the template's if that is more",
      image({ floorMb: 1024 }),
      { defaults: { ...DEFAULTS, memoryMaxBytes: 4096 * MIB } },
      [128, 4096],
    ],
    [
      "starts with what it needs to start",
      image({ floorMb: 1024, startPeakMb: 300 }),
      { defaults: DEFAULTS },
      [428, 1024],
    ],
    ["is all there at once if the defaults are", image(), { defaults: { memoryBytes: 512 * MIB } }, [512, undefined]],
    [
      "is what was asked for",
      image({ floorMb: 256 }),
      { defaults: DEFAULTS, limits: { memoryBytes: 300 * MIB } },
      [300, undefined],
    ],
    [
      "is never less than the floor",
      image({ floorMb: 256 }),
      { defaults: DEFAULTS, limits: { memoryBytes: 64 * MIB } },
      [256, undefined],
    ],
    ["is what it was made with", image({ limitMb: 700 }), { defaults: DEFAULTS }, [700, undefined]],
    [
      "grows as was asked for, at least to the floor",
      image({ floorMb: 512 }),
      { defaults: DEFAULTS, limits: { memoryBytes: 64 * MIB, memoryMaxBytes: 256 * MIB } },
      [64, 512],
    ],
  ] as const)("%s", (_, of, request, expected) => {
    expect(memory(of, request)).toEqual(expected);
  });
});

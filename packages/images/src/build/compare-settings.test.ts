import type { CommandCause } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import type { BuildSettings } from "./build-settings.js";
import { hasNoLess, wouldHelp } from "./compare-settings.js";

const MIB = 1024 * 1024;
const had: BuildSettings = {
  memoryBytes: 256 * MIB,
  memoryStartBytes: 256 * MIB,
  mostMemoryBytes: 8192 * MIB,
  pids: 100,
  cpuMillis: 1000,
  diskBytes: 100 * MIB,
  timeoutMs: 5000,
  floorBytes: 64 * MIB,
  floorIsAsked: true,
  retryOnOom: false,
  network: false,
};
const OOM = { kind: "out_of_memory", limitBytes: 256 * MIB, peakBytes: 256 * MIB } as CommandCause;
const EXITED: CommandCause = { kind: "exited", code: 1 };

describe("whether other settings would have helped", () => {
  it.each<[string, string, CommandCause, Partial<BuildSettings>, boolean]>([
    ["the same", "1", OOM, {}, false],
    ["more memory", "1", OOM, { memoryBytes: 512 * MIB }, true],
    ["less memory", "1", OOM, { memoryBytes: 128 * MIB }, false],
    ["another try", "1", OOM, { retryOnOom: true }, true],
    ["a higher floor", "finalize", OOM, { floorBytes: 128 * MIB }, true],
    ["a lower floor", "finalize", OOM, { floorBytes: 32 * MIB }, false],
    ["a higher floor", "finalize", EXITED, { floorBytes: 128 * MIB }, true],
    ["a higher floor", "1", EXITED, { floorBytes: 128 * MIB }, false],
    ["more memory", "1", EXITED, { memoryBytes: 512 * MIB }, false],
    ["a network", "1", EXITED, { network: true }, true],
    ["more time", "1", { kind: "timed_out", limitMs: 5000 }, { timeoutMs: 6000 }, true],
  ])("%s, when step %s failed: %o", (_what, step, cause, change, expected) => {
    expect(wouldHelp({ ...had, ...change }, { settings: had, failure: { step, cause } })).toBe(expected);
  });
});

describe("whether a build has no less than another", () => {
  it.each<[Partial<BuildSettings>, boolean]>([
    [{}, true],
    [{ memoryBytes: 512 * MIB, floorBytes: 1 }, true],
    [{ memoryBytes: 128 * MIB }, false],
    [{ network: true }, false],
    [{ cpuMillis: 10 }, false],
    [{ diskBytes: 1 }, false],
    [{ timeoutMs: 1 }, false],
  ])("%o: %s", (change, expected) => {
    expect(hasNoLess({ ...had, ...change }, had)).toBe(expected);
  });
});

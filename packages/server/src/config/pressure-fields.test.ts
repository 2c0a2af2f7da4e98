import { expect, test } from "vitest";
import { loadConfig } from "./load.js";

const load = (variable: string, text: string) => loadConfig({ env: { [`HOLDFAST_SERVE_${variable}`]: text } });

test("thresholds are given as a list", () => {
  expect(load("PROCESS_THRESHOLDS", "[50,70,95]").processThresholds).toEqual([50, 70, 95]);
  expect(load("PRESSURE_STALL", "[1,2,3,4,5]").pressureStall).toEqual([1, 2, 3, 4, 5]);
});

test.each([
  ["PROCESS_THRESHOLDS", "60"],
  ["PROCESS_THRESHOLDS", "[60,80]"],
  ["PROCESS_THRESHOLDS", "[80,60,90]"],
  ["PROCESS_THRESHOLDS", "[60,60,90]"],
  ["PROCESS_THRESHOLDS", '["a",60,90]'],
  ["PROCESS_THRESHOLDS", "[0,60,90]"],
  ["PROCESS_THRESHOLDS", "[60,80,101]"],
  ["PRESSURE_STALL", "[10,20,40,60]"],
  ["PRESSURE_SOURCE", "memory"],
  ["THROTTLED_COMMANDS", "0"],
])("%s=%s is refused, with what it should be", (variable, text) => {
  expect(() => load(variable, text)).toThrow(/percentages|one of auto, psi, usage|commands from 1/);
});

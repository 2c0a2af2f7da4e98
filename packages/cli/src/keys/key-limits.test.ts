import { expect, test } from "vitest";
import { parseKeyLimits } from "./key-limits.js";

const configured = { sandboxes: 20, memoryBytes: null, requestsPerSecond: 50 };

test("what is not given is as configured", () => {
  expect(parseKeyLimits({}, configured)).toEqual(configured);
});

test("flags win, and none means no limit", () => {
  expect(parseKeyLimits({ sandboxes: "none", memory: "2g", rate: "5" }, configured)).toEqual({
    sandboxes: null,
    memoryBytes: 2 * 1024 ** 3,
    requestsPerSecond: 5,
  });
});

test("nothing is no limit one could want", () => {
  expect(() => parseKeyLimits({ sandboxes: "0" }, configured)).toThrow(/^--sandboxes/);
  expect(() => parseKeyLimits({ memory: "much" }, configured)).toThrow(/^--memory/);
  expect(() => parseKeyLimits({ rate: "-1" }, configured)).toThrow(/^--rate/);
});

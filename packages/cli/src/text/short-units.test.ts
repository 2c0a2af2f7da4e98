import { expect, test } from "vitest";
import { shortSize } from "./sizes.js";
import { localTime, shortDuration } from "./times.js";

test.each([
  [0, "0s"],
  [-5, "0s"],
  [999, "0s"],
  [45_000, "45s"],
  [60_000, "1m"],
  [61_000, "1m1s"],
  [12_000_000, "3h20m"],
  [3_600_000, "1h"],
  [187_200_000, "2d4h"],
])("%d ms are %s", (ms, text) => {
  expect(shortDuration(ms)).toBe(text);
});

test.each([
  [0, "0"],
  [17, "17B"],
  [1023, "1.0K"],
  [64 * 1024 ** 2, "64M"],
  [1.5 * 1024 ** 3, "1.5G"],
  [512 * 1024 ** 2, "512M"],
  [2 ** 60, "1048576T"],
])("%d bytes are %s", (bytes, text) => {
  expect(shortSize(bytes)).toBe(text);
});

test("a time that is none is a question mark", () => {
  expect(localTime("nonsense")).toBe("?");
  expect(localTime("2026-01-02T03:04:05.000Z")).toMatch(/^2026-01-0\d \d\d:\d\d:05$/);
});

import { describe, expect, it } from "vitest";
import { formatBytes, formatDuration, parseDuration, parseSize, sizeFlag } from "./units.js";

describe("parseSize", () => {
  it.each([
    ["256m", 268_435_456],
    ["1.5g", 1_610_612_736],
    ["64MiB", 67_108_864],
    ["64mb", 67_108_864],
    ["4096", 4096],
    ["4k", 4096],
    [" 1 G ", 1_073_741_824],
  ])("reads %s", (text, bytes) => expect(parseSize(text)).toBe(bytes));

  it.each(["", "m", "-1m", "1x", "1.m", "0x10", "1e3", "1 2"])("refuses %j and names the field", (text) => {
    expect(() => parseSize(text, "--memory")).toThrow("--memory");
  });
});

describe("parseDuration", () => {
  it.each([
    ["30s", 30_000],
    ["500ms", 500],
    ["1.5h", 5_400_000],
    ["90", 90_000],
    ["2m", 120_000],
  ])("reads %s", (text, ms) => expect(parseDuration(text)).toBe(ms));

  it.each(["", "s", "-1s", "1y"])("refuses %j", (text) =>
    expect(() => parseDuration(text, "--timeout")).toThrow("--timeout"),
  );
});

describe("formatting", () => {
  it("writes sizes and times with units", () => {
    expect([0, 1023, 1536, 268_435_456, 255_852_544].map(formatBytes)).toEqual([
      "0 B",
      "1023 B",
      "1.5 KiB",
      "256 MiB",
      "244 MiB",
    ]);
    expect([12, 1500, 61_000, 3_660_000].map(formatDuration)).toEqual(["12 ms", "1.5 s", "1 min 1 s", "1 h 1 min"]);
  });

  it("writes a size as our flags take it", () => {
    for (const bytes of [1, 1024, 3 * 1024 ** 2, 512 * 1024 ** 2, 2 * 1024 ** 3])
      expect(parseSize(sizeFlag(bytes))).toBe(bytes);
    expect(sizeFlag(512 * 1024 ** 2)).toBe("512m");
  });
});

import { expect, test } from "vitest";
import { parseRange } from "./byte-range.js";

test.each([
  [undefined, undefined],
  ["bytes=0-0", { offset: 0, length: 1 }],
  ["bytes=0-", { offset: 0, length: 100 }],
  ["Bytes = 10-19", { offset: 10, length: 10 }],
  ["bytes=90-200", { offset: 90, length: 10 }],
  ["bytes=-5", { offset: 95, length: 5 }],
  ["bytes=-500", { offset: 0, length: 100 }],
  ["bytes=100-", "unsatisfiable"],
  ["bytes=-0", "unsatisfiable"],
  ["bytes=999999999999999999999-", "unsatisfiable"],
  ["bytes=5-4", undefined],
  ["bytes=-", undefined],
  ["bytes=0-1,5-6", undefined],
  ["bytes=a-b", undefined],
  ["lines=0-1", undefined],
])("%j of 100 bytes is %j", (header, range) => {
  expect(parseRange(header, 100)).toEqual(range);
});

test("an empty file has no ranges", () => {
  expect(parseRange("bytes=0-", 0)).toBe("unsatisfiable");
});

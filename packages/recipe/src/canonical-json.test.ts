import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalJson } from "./canonical-json.js";

test("members are sorted by UTF-16 code units, without spaces", () => {
  // The example of RFC 8785, section 3.2.3.
  const value = { "\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\ud83d\ude00": 5, "\u0080": 6, "\u00f6": 7 };
  expect(canonicalJson(value)).toBe('{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\ufb33":3}');
});

test("numbers and strings are written as ECMAScript writes them", () => {
  expect(canonicalJson([333333333.3333333, 1e30, 4.5, 2e-3, 1e-27, -0, 1e21, 100])).toBe(
    "[333333333.3333333,1e+30,4.5,0.002,1e-27,0,1e+21,100]",
  );
  expect(canonicalJson('€$\u000F\nA\'B"\\\\"/<>&\u2028')).toBe('"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/<>&\u2028"');
});

test("members that are undefined are left out", () => {
  expect(canonicalJson({ b: undefined, a: { c: undefined } })).toBe('{"a":{}}');
});

test("names that objects have by themselves are ordinary members", () => {
  expect(canonicalJson(JSON.parse('{"__proto__":{"a":1},"constructor":2}'))).toBe(
    '{"__proto__":{"a":1},"constructor":2}',
  );
});

describe("refuses, by name,", () => {
  const circle: { list: unknown[] } = { list: [] };
  circle.list.push(circle);
  test.each<[string, unknown, RegExp]>([
    ["undefined", undefined, /the value is of the type undefined/],
    ["undefined in a list", { a: [1, undefined] }, /a\[1\] is of the type undefined/],
    // biome-ignore lint/suspicious/noSparseArray: the hole is what is tested.
    ["a hole in a list", [1, , 2], /\[1\] is of the type undefined/],
    ["NaN", { a: { b: Number.NaN } }, /a\.b is NaN/],
    ["infinity", [Number.NEGATIVE_INFINITY], /\[0\] is -Infinity/],
    ["half a pair", { a: "x\ud800" }, /a holds half of a surrogate pair/],
    ["half a pair in a name", { "\udc00": 1 }, /half of a surrogate pair/],
    ["a date", { a: new Date(0) }, /a is not a plain object/],
    ["a map", new Map(), /not a plain object/],
    ["a big number", { a: 1n }, /a is of the type bigint/],
    ["a function", { a: () => 1 }, /a is of the type function/],
    ["a symbol's member", { [Symbol("x")]: 1 }, /symbol/],
    ["a circle", circle, /nested deeper than 64/],
  ])("%s", (_, value, message) => {
    expect(() => canonicalJson(value)).toThrow(message);
  });
});

test("what comes out means the same, whatever the order of members", () => {
  const value = fc.jsonValue({ depthSize: "small", stringUnit: "grapheme" });
  fc.assert(
    fc.property(value, (given) => {
      const text = canonicalJson(given);
      expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(given)));
      expect(canonicalJson(reversed(given))).toBe(text);
    }),
  );
});

function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([name, member]) => [name, reversed(member)]),
  );
}

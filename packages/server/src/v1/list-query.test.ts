import { createSandboxId } from "@holdfast/protocol";
import { describe, expect, test } from "vitest";
import { cursorAfter, parseCursor, parseMetadataFilter } from "./list-query.js";

describe("a filter by metadata", () => {
  test("is a list of pairs, percent-encoded", () => {
    expect(parseMetadataFilter(["user=bob", "a%3Db=1=2", "n=", "%F0%9F%A6%80=%25"])).toEqual({
      user: "bob",
      "a=b": "1=2",
      n: "",
      "🦀": "%",
    });
  });

  test.each(["bob", "=bob", "a=%", "%zz=1", ""])("that is %j is refused by name", (pair) => {
    expect(() => parseMetadataFilter([pair])).toThrow(/^metadata: expected key=value/);
  });

  test("that can fit nothing is refused", () => {
    expect(() => parseMetadataFilter(["a=1", "a=2"])).toThrow(/each key once/);
  });

  test("knows keys that objects have by themselves", () => {
    expect(Object.entries(parseMetadataFilter(["constructor=x", "__proto__=y"]))).toEqual([
      ["constructor", "x"],
      ["__proto__", "y"],
    ]);
  });
});

describe("a cursor", () => {
  test("leads back to where it was", () => {
    const row = { createdAt: new Date(), id: createSandboxId() };
    expect(parseCursor(cursorAfter(row))).toEqual(row);
  });

  test.each(["", "x", Buffer.from("12.../x").toString("base64url"), "a".repeat(1000)])(
    "that is %j is refused",
    (text) => {
      expect(() => parseCursor(text)).toThrow(/^cursor: expected/);
    },
  );
});

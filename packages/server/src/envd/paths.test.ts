import { HoldfastError } from "@holdfast/protocol";
import { describe, expect, test } from "vitest";
import { checkPath, checkPathOrHome, joinPath } from "./paths.js";

describe("a path", () => {
  test.each(["/", "a", "~/x", "../..", "/with spaces/ü", "/😀", `/${"a".repeat(4094)}`])(
    "%s is passed on as it is",
    (path) => {
      expect(checkPath("path", path)).toBe(path);
    },
  );

  test.each(["", "a\0b", "\ud800", "/x\udfff", `/${"a".repeat(4095)}`, "ü".repeat(2048)])(
    "%j is refused by name",
    (path) => {
      expect(() => checkPath("source", path)).toThrow(HoldfastError);
      expect(() => checkPath("source", path)).toThrow(/^source: expected a path/);
    },
  );

  test("an empty one is the home directory where nothing is changed", () => {
    expect(checkPathOrHome("path", "")).toBe("~");
    expect(checkPathOrHome("path", "x")).toBe("x");
  });

  test.each([
    ["/", "a", "/a"],
    ["/x", "a/b", "/x/a/b"],
    ["/x", "", "/x"],
  ])("%s and %s are %s", (directory, name, joined) => {
    expect(joinPath(directory, name)).toBe(joined);
  });
});

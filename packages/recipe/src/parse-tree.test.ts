import { HoldfastError } from "@holdfast/protocol";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseTree } from "./parse-tree.js";

const DIGEST = `sha256:${"a".repeat(64)}`;
const file = (path: string, changes: object = {}): object => ({
  path,
  type: "file",
  mode: 0o644,
  sizeBytes: 1,
  digest: DIGEST,
  ...changes,
});
const directory = (path: string): object => ({ path, type: "directory", mode: 0o755 });
const symlink = (path: string, target: unknown = "x"): object => ({ path, type: "symlink", mode: 0o777, target });
const tree = (...entries: object[]): object => ({ version: 1, entries });

test.each<[string, object]>([
  ["nothing", tree()],
  ["a single file", tree(file(""))],
  ["links that lead anywhere", tree(symlink("a", "../../etc/passwd"), symlink("b", "/proc/1/root"))],
  ["directories that are and are not listed", tree(directory("a"), file("a.b"), file("a/b"), file("c/d/e"))],
  ["owners", tree(file("a", { uid: 0, gid: 4_294_967_294 }))],
])("%s comes out as it went in", (_, value) => {
  expect(parseTree(value)).toEqual(value);
});

describe("refuses", () => {
  test.each<[string, unknown]>([
    ["version: expected 1", { version: 2, entries: [] }],
    ["entries: expected a list", { version: 1 }],
    ["mode: there is no such field", { version: 1, entries: [], mode: 1 }],
    ["entries[0].type: expected file, directory or symlink", tree({ path: "a", type: "device", mode: 0 })],
    ["entries[0].path: expected a relative path", tree(file("/a"))],
    ["entries[0].path: expected a relative path", tree(file("../a"))],
    ["entries[0].path: expected a relative path", tree(file("a/../b"))],
    ["entries[0].path: expected a relative path", tree(file("a/./b"))],
    ["entries[0].path: expected a relative path", tree(file("a//b"))],
    ["entries[0].path: expected a relative path", tree(directory("a/"))],
    ["without NUL bytes", tree(file("a\0b"))],
    ["a name in the path of at most 255 bytes", tree(file("a".repeat(256)))],
    ["unless the tree is one single file", tree(file(""), file("a"))],
    ["unless the tree is one single file", tree({ path: "", type: "directory", mode: 0 })],
    ["entries[1].path: expected paths in order", tree(file("b"), file("a"))],
    ["entries[1].path: expected paths in order, each of them once", tree(file("a"), file("a"))],
    ["entries[1].path: expected a path that leads through no symlink", tree(symlink("a", "/etc"), file("a/passwd"))],
    ["entries[2].path: expected a path that leads through no file", tree(file("a"), file("a.b"), file("a/b/c"))],
    ["entries[0].mode: expected a file mode", tree(file("a", { mode: 0o100644 }))],
    ["entries[0].mode: expected 0o777", tree({ ...symlink("a"), mode: 0o755 })],
    ["entries[0].digest: expected", tree(file("a", { digest: undefined }))],
    ["entries[0].sizeBytes: expected a whole number", tree(file("a", { sizeBytes: -1 }))],
    ["entries[0].target: there is no such field", tree(file("a", { target: "b" }))],
    ["entries[0].digest: there is no such field", tree({ ...directory("a"), digest: DIGEST })],
    ["entries[0].target: expected a link's target", tree({ path: "a", type: "symlink", mode: 0o777 })],
    ["entries[0].target: expected a link's target that is not empty", tree(symlink("a", ""))],
    ["entries[0].gid: expected", tree(file("a", { uid: 0 }))],
  ])("%s", (message, value) => {
    expect(() => parseTree(value)).toThrow(message);
  });
});

test("whatever comes in, it is a tree or refused by name", () => {
  const entry = fc.record(
    {
      path: fc.oneof(fc.string(), fc.constantFrom("a", "a/b", "", "..", "a/..")),
      type: fc.constantFrom("file", "directory", "symlink", "x"),
      mode: fc.oneof(fc.integer(), fc.constant(0o644)),
      sizeBytes: fc.nat(),
      digest: fc.constantFrom(DIGEST, "x"),
      target: fc.string(),
    },
    { requiredKeys: ["path", "type"] },
  );
  const value = fc.oneof(fc.jsonValue(), fc.record({ version: fc.constant(1), entries: fc.array(entry) }));
  fc.assert(
    fc.property(value, (given) => {
      try {
        expect(parseTree(parseTree(given))).toEqual(parseTree(given));
      } catch (error) {
        expect(error).toBeInstanceOf(HoldfastError);
        expect((error as HoldfastError).code).toBe("invalid_argument");
      }
    }),
    { numRuns: 500 },
  );
});

test("large and deep trees are checked in a moment", () => {
  const deep = Array.from({ length: 2000 }, () => "a").join("/");
  const entries = Array.from({ length: 2000 }, (_, index) => file(`${deep}/${String(index).padStart(4, "0")}`));
  const began = performance.now();
  parseTree(tree(...entries));
  expect(performance.now() - began).toBeLessThan(3000);
});

import { expect, test } from "vitest";
import { destinationOf, parsePlace, planCopy } from "./places.js";

test("an id before the first colon names a sandbox", () => {
  expect(parsePlace("i1a2:/etc/hosts", "SRC")).toEqual({ kind: "sandbox", sandbox: "i1a2", path: "/etc/hosts" });
  expect(parsePlace("i1a2:notes:old", "SRC")).toEqual({ kind: "sandbox", sandbox: "i1a2", path: "notes:old" });
  expect(parsePlace("i1a2:", "SRC")).toEqual({ kind: "sandbox", sandbox: "i1a2", path: "." });
  expect(parsePlace("./a:b", "SRC")).toEqual({ kind: "host", path: "./a:b" });
  expect(parsePlace("/a:b", "SRC")).toEqual({ kind: "host", path: "/a:b" });
  expect(parsePlace("C:x", "SRC")).toEqual({ kind: "host", path: "C:x" });
  expect(parsePlace("-", "SRC")).toEqual({ kind: "stream" });
});

test("an empty path is refused by its side", () => {
  expect(() => parsePlace("", "SRC")).toThrow(/^SRC: /);
  expect(() => parsePlace("a\0b", "SRC")).toThrow(/^SRC: /);
});

test("exactly one side is in a sandbox", () => {
  expect(planCopy("a", "i1:b").direction).toBe("in");
  expect(planCopy("i1:b", "-").direction).toBe("out");
  expect(() => planCopy("i1:a", "i2:b")).toThrow("both sides are in a sandbox");
  expect(() => planCopy("a", "b")).toThrow("neither side is in a sandbox");
});

const file = { sourceIsDirectory: false, destinationIsDirectory: false };
const fileIntoDirectory = { sourceIsDirectory: false, destinationIsDirectory: true };
const directory = { sourceIsDirectory: true, destinationIsDirectory: false };
const directoryIntoDirectory = { sourceIsDirectory: true, destinationIsDirectory: true };

test("what is copied into a directory keeps its name", () => {
  const source = { kind: "host", path: "/a/notes.txt" } as const;
  expect(destinationOf(source, "/tmp", fileIntoDirectory)).toBe("/tmp/notes.txt");
  expect(destinationOf(source, "/tmp/", file)).toBe("/tmp/notes.txt");
  expect(destinationOf(source, "/tmp/other", file)).toBe("/tmp/other");
  expect(destinationOf({ kind: "host", path: "src/" }, "/work", directoryIntoDirectory)).toBe("/work/src");
  expect(destinationOf({ kind: "host", path: "src" }, "/work/", directory)).toBe("/work/");
});

test("a dot stands for what is in the directory", () => {
  for (const path of [".", "src/.", "..", "/"]) {
    expect(destinationOf({ kind: "host", path }, "/work", directoryIntoDirectory)).toBe("/work");
  }
});

test("what comes from stdin needs a name", () => {
  expect(() => destinationOf({ kind: "stream" }, "/tmp", fileIntoDirectory)).toThrow(/^DST: /);
});

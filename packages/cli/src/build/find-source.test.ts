import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { findSource } from "./find-source.js";

let context = "";
beforeEach(() => {
  context = mkdtempSync(join(tmpdir(), "holdfast-source-"));
});
afterEach(() => rmSync(context, { recursive: true, force: true }));

const write = (name: string): string => {
  const path = join(context, name);
  writeFileSync(path, "");
  return path;
};

test("a module in the context comes before a Dockerfile", () => {
  const dockerfile = write("Dockerfile");
  expect(findSource(context, undefined)).toEqual({ kind: "dockerfile", path: dockerfile, context });
  const declared = write("holdfast.image.mjs");
  expect(findSource(context, undefined)).toEqual({ kind: "module", path: declared, context });
});

test("a file that is named is what its name says", () => {
  expect(findSource(context, write("image.ts")).kind).toBe("module");
  expect(findSource(context, write("image.js")).kind).toBe("module");
  expect(findSource(context, write("app.Dockerfile")).kind).toBe("dockerfile");
  expect(findSource(context, write("Dockerfile.ts-node")).kind).toBe("dockerfile");
});

test("what is not there is named, with what would be right", () => {
  expect(() => findSource(join(context, "no"), undefined)).toThrow(/^CONTEXT: .* does not exist/);
  expect(() => findSource(context, undefined)).toThrow(/^CONTEXT: there is nothing to build from/);
  expect(() => findSource(context, "nowhere")).toThrow(/^--file: there is no file/);
  expect(() => findSource(context, "-")).toThrow(/^--file: expected the path/);
  const file = write("Dockerfile");
  expect(() => findSource(file, undefined)).toThrow(/^CONTEXT: expected a directory/);
});

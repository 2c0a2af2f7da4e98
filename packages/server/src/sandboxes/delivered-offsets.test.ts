import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, expect, test } from "vitest";
import { DeliveredOffsets } from "./delivered-offsets.js";

const directory = mkdtempSync(join(tmpdir(), "holdfast-delivered-"));
afterEach(() => rmSync(join(directory, "offsets"), { force: true }));
afterAll(() => rmSync(directory, { recursive: true }));
const open = () => new DeliveredOffsets(join(directory, "offsets"));

test("begins at the first byte", () => {
  expect(open().get(7)).toEqual({ stdout: 0, stderr: 0 });
});

test("is there for the next process, which opens the same file", () => {
  const first = open();
  first.advance(1, "stdout", 100);
  first.advance(1, "stderr", 5);
  first.advance(2, "stdout", 2 ** 40);
  const second = open();
  expect(second.get(1)).toEqual({ stdout: 100, stderr: 5 });
  expect(second.get(2)).toEqual({ stdout: 2 ** 40, stderr: 0 });
});

test("never goes back", () => {
  const offsets = open();
  offsets.advance(1, "stdout", 100);
  offsets.advance(1, "stdout", 40);
  expect(offsets.get(1).stdout).toBe(100);
});

test("a newer command in the same slot does not inherit the offsets of the old one", () => {
  const offsets = open();
  offsets.advance(1, "stdout", 100);
  expect(offsets.get(1 + 1024)).toEqual({ stdout: 0, stderr: 0 });
  offsets.advance(1 + 1024, "stdout", 3);
  offsets.forget(1);
  expect(open().get(1)).toEqual({ stdout: 0, stderr: 0 });
  expect(open().get(1 + 1024)).toEqual({ stdout: 3, stderr: 0 });
});

import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openMetricsKey } from "./metrics-key.js";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "holdfast-metrics-"));
});
afterEach(() => rmSync(directory, { recursive: true }));

test("the key is made once, and only its owner can read it", () => {
  const path = join(directory, "metrics.key");
  const key = openMetricsKey(path);
  expect(key).toMatch(/^hfm_[0-9a-f]{40}$/);
  expect(openMetricsKey(path)).toBe(key);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test.each(["", "\n", "hfm_", "secret"])("a file that holds %j is not taken for a key", (text) => {
  const path = join(directory, "metrics.key");
  writeFileSync(path, text);
  expect(() => openMetricsKey(path)).toThrow(HoldfastError);
});

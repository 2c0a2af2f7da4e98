// The guest's own tests are plain node:test programs beside its sources, so that they run without this workspace
// (`make -C guest test`). Here each file is one test.
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, test } from "vitest";

const guest = fileURLToPath(new URL("../../guest", import.meta.url));
const TIMEOUT_MS = 300_000;

/** Resolves to what a failed program printed, or undefined if it succeeded. */
function runGuestTool(
  command: string,
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): Promise<string | undefined> {
  // vitest's own variables would make node:test report to a parent that does not listen.
  const { NODE_TEST_CONTEXT: _, NODE_OPTIONS: __, ...inherited } = process.env;
  const env = { ...inherited, ...variables };
  return new Promise((resolve) => {
    execFile(command, args, { cwd: guest, env, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      resolve(error === null ? undefined : `${command} ${args.join(" ")}: ${error.message}\n${stdout}${stderr}`);
    });
  });
}

function testFiles(): string[] {
  const names = readdirSync(join(guest, "tests")).filter((name) => name.endsWith(".mjs"));
  return names.filter((name) => /from ["']node:test["']/.test(readFileSync(join(guest, "tests", name), "utf8"))).sort();
}

/** Those that drive the whole guest, whose binary can be chosen; the file worker's run both builds by themselves. */
const wholeGuest = testFiles().filter((name) => !name.startsWith("file-"));

beforeAll(async () => {
  expect(await runGuestTool("make", ["-j2", "all", "asan"])).toBeUndefined();
}, TIMEOUT_MS);

test.each(testFiles())("%s", { timeout: TIMEOUT_MS }, async (name) => {
  expect(await runGuestTool(process.execPath, ["--test", "--test-reporter=spec", `tests/${name}`])).toBeUndefined();
});

test.each(wholeGuest)("%s, with sanitizers", { timeout: TIMEOUT_MS }, async (name) => {
  const sanitized = { GUEST_BINARY: "build/holdfast-guest-asan" };
  const args = ["--test", "--test-reporter=spec", `tests/${name}`];
  expect(await runGuestTool(process.execPath, args, sanitized)).toBeUndefined();
});

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
function runGuestTool(command: string, args: readonly string[]): Promise<string | undefined> {
  // vitest's own variables would make node:test report to a parent that does not listen.
  const { NODE_TEST_CONTEXT: _, NODE_OPTIONS: __, ...env } = process.env;
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

beforeAll(async () => {
  expect(await runGuestTool("make", [])).toBeUndefined();
}, TIMEOUT_MS);

test.each(testFiles())("%s", { timeout: TIMEOUT_MS }, async (name) => {
  expect(await runGuestTool(process.execPath, ["--test", "--test-reporter=spec", `tests/${name}`])).toBeUndefined();
});

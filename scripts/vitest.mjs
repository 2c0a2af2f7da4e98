// How the scripts run vitest, and what they learn of its outcome.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { asRoot, handOver, root } from "./run.mjs";

export const ISOLATED = [join(root, "tests/helpers/isolated.sh"), process.execPath];

export function only(projects) {
  return projects.map((project) => `--project=${project}`);
}

/** By the names in vitest's configuration, in its order. */
export function allProjects() {
  const text = readFileSync(join(root, "vitest.config.ts"), "utf8");
  return [...text.matchAll(/(?:pure|kernel)Project\("([a-z0-9]+)"/g)].map((match) => match[1]);
}

/** The files of all runs in one directory share what they leave there, such as the base image. */
export async function runVitest(directory, name, start, [command, ...before], args, env = {}) {
  const totals = join(directory, `${name}.json`);
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const reporters = ["--reporter=default", "--reporter=./scripts/count-reporter.mjs"];
  const plain = start === handOver && process.stdout.isTTY ? {} : { NO_COLOR: "1" };
  const code = await start(...asRoot(command, [...before, vitest, "run", ...reporters, ...args]), {
    HOLDFAST_TEST_TOTALS: totals,
    ...plain,
    ...env,
  });
  return readTotals(totals, code);
}

export function readTotals(path, code) {
  const totals = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : { passed: 0, failed: 0, skipped: 0 };
  // vitest knows of failures that no test shows, such as a wrong option or its own death.
  if (code !== 0 && totals.failed === 0) totals.failed = 1;
  return totals;
}

export function sum(all) {
  const total = { passed: 0, failed: 0, skipped: 0 };
  for (const part of all) for (const name of Object.keys(total)) total[name] += part[name];
  return total;
}

export function describeTotals({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
}

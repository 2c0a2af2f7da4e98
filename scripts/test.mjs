// `npm test`: lint, types, then every test. `npm test -- <vitest arguments>` runs the tests they select, and only
// those. The last line is `N passed, N failed`, and `0 failed` means that everything is well: a failed check, a test
// file that does not load and an error outside of any test count as failures too.
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asRoot, capture, handOver, main, root, stream } from "./run.mjs";
import { setup } from "./setup.mjs";

const CHECKS = [
  { name: "biome", script: "@biomejs/biome/bin/biome", args: ["check", "--error-on-warnings"] },
  { name: "eslint", script: "eslint/bin/eslint.js", args: ["--max-warnings=0"] },
  { name: "tsc", script: "typescript/bin/tsc", args: ["-p", "tsconfig.check.json", "--pretty", "false"] },
];

/** Tests that use no kernel. They take all cores, so they have them for themselves. */
const PURE = ["unit", "house"];
/** Of the others, those of the first lane; the second has whatever is left, so that no project can be forgotten. */
const FIRST_LANE = ["engine", "security", "server", "e2e"];

await main(async () => {
  await setup({ test: true });
  const selection = process.argv.slice(2);
  const directory = mkdtempSync(join(tmpdir(), "holdfast-test-"));
  try {
    const { passed, failed, skipped } = sum(
      selection.length === 0 ? await runEverything(directory) : [await runSelection(directory, selection)],
    );
    console.log(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
    return failed === 0 ? 0 : 1;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

/**
 * A test on the kernel waits more than it computes: two lanes of projects run side by side, each in namespaces of its own,
 * so that neither takes what the other does for a leak. The checks have what time the tests leave.
 */
async function runEverything(directory) {
  const checks = runChecks();
  // The tests that start programs of ours build them if need be; nobody may do so while the other lane runs them. What is
  // wrong with the types is the check's to say.
  await capture(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-b", "packages/cli"]);
  const pure = await runVitest(directory, "pure", stream, [process.execPath], only(PURE));
  const isolated = [join(root, "tests/helpers/isolated.sh"), process.execPath];
  const lanes = await Promise.all([
    runVitest(directory, "first", stream, isolated, only(FIRST_LANE)),
    runVitest(directory, "second", stream, isolated, only(secondLane())),
  ]);
  return [pure, ...lanes, await checks];
}

function only(projects) {
  return projects.map((project) => `--project=${project}`);
}

/** By the names in vitest's configuration: of several `--project=!name` each alone would let all the others in. */
function secondLane() {
  const text = readFileSync(join(root, "vitest.config.ts"), "utf8");
  const projects = [...text.matchAll(/(?:pure|kernel)Project\("([a-z0-9]+)"/g)].map((match) => match[1]);
  return projects.filter((project) => !PURE.includes(project) && !FIRST_LANE.includes(project));
}

function runSelection(directory, selection) {
  // Whoever names a file that is not there wants to know; an empty project in a full run is no failure.
  return runVitest(directory, "selection", handOver, [process.execPath], [...selection, "--passWithNoTests=false"]);
}

/** All three side by side; a failure of one hides neither the others nor the tests. */
async function runChecks() {
  const start = performance.now();
  const results = await Promise.all(
    CHECKS.map(async ({ name, script, args }) => {
      const command = ["-n", "19", process.execPath, join(root, "node_modules", script), ...args];
      const { code, output } = await capture("nice", command);
      return { name, code, output };
    }),
  );
  const failed = results.filter(({ code }) => code !== 0);
  for (const { name, output } of failed) console.log(`${output.trimEnd()}\n\n${name} found problems, see above.\n`);
  const passed = results.filter(({ code }) => code === 0).map(({ name }) => name);
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  if (passed.length > 0) console.log(`${passed.join(", ")}: no problems (${seconds} s)`);
  return { passed: 0, failed: failed.length, skipped: 0 };
}

/** The files of all runs in one directory share what they leave there, such as the base image. */
async function runVitest(directory, name, start, [command, ...before], args) {
  const totals = join(directory, `${name}.json`);
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const reporters = ["--reporter=default", "--reporter=./scripts/count-reporter.mjs"];
  const plain = start === handOver && process.stdout.isTTY ? {} : { NO_COLOR: "1" };
  const code = await start(...asRoot(command, [...before, vitest, "run", ...reporters, ...args]), {
    HOLDFAST_TEST_TOTALS: totals,
    ...plain,
  });
  return readTotals(totals, code);
}

function readTotals(path, code) {
  const totals = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : { passed: 0, failed: 0, skipped: 0 };
  // vitest knows of failures that no test shows, such as a wrong option or its own death.
  if (code !== 0 && totals.failed === 0) totals.failed = 1;
  return totals;
}

function sum(all) {
  const total = { passed: 0, failed: 0, skipped: 0 };
  for (const part of all) for (const name of Object.keys(total)) total[name] += part[name];
  return total;
}

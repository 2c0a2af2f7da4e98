// `npm test`: lint, types, then every test. `npm test -- <vitest arguments>` runs the tests they select, and only
// those. The last line is `N passed, N failed`, and `0 failed` means that everything is well: a failed check, a test
// file that does not load and an error outside of any test count as failures too.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asRoot, capture, handOver, main, root, stream } from "./run.mjs";
import { setup } from "./setup.mjs";
import { allProjects, describeTotals, ISOLATED, only, readTotals, runVitest, sum } from "./vitest.mjs";

const CHECKS = [
  { name: "biome", script: "@biomejs/biome/bin/biome", args: ["check", "--error-on-warnings"] },
  { name: "eslint", script: "eslint/bin/eslint.js", args: ["--max-warnings=0"] },
  { name: "tsc", script: "typescript/bin/tsc", args: ["-p", "tsconfig.check.json", "--pretty", "false"] },
];

/** Tests that use no kernel. They take all cores, so they have them for themselves. */
const PURE = ["unit", "house"];
/** Of the others, those of the first lane; the second has whatever is left, so that no project can be forgotten. */
const FIRST_LANE = ["engine", "security", "server", "e2e"];
/** What matters most, and is quick: starts and ends, streams, adoption. */
const ON_SMALL_HOST = ["tests/engine/smoke.test.ts", "tests/engine/crash.test.ts", "tests/server/port-proxy.test.ts"];

await main(async () => {
  await setup({ test: true });
  const selection = process.argv.slice(2);
  const directory = mkdtempSync(join(tmpdir(), "holdfast-test-"));
  try {
    const totals = sum(
      selection.length === 0 ? await runEverything(directory) : [await runSelection(directory, selection)],
    );
    console.log(describeTotals(totals));
    return totals.failed === 0 ? 0 : 1;
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
  const lanes = [
    runVitest(directory, "first", stream, ISOLATED, only(FIRST_LANE)),
    runVitest(directory, "second", stream, ISOLATED, only(secondLane())),
  ];
  // In the place of the lane that is done first, beside the other.
  const onSmallHost = Promise.race(lanes).then(() => runOnSmallHost(directory));
  return [pure, ...(await Promise.all([...lanes, onSmallHost])), await checks];
}

function secondLane() {
  return allProjects().filter((project) => !PURE.includes(project) && !FIRST_LANE.includes(project));
}

function runSelection(directory, selection) {
  // Whoever names a file that is not there wants to know; an empty project in a full run is no failure.
  return runVitest(directory, "selection", handOver, [process.execPath], [...selection, "--passWithNoTests=false"]);
}

/** With everything that runs it in 2 GiB and 400 processes; `npm run test:small-host` runs all of it there. */
async function runOnSmallHost(directory) {
  const totals = join(directory, "small-host.json");
  const script = join(root, "scripts/small-host.mjs");
  const code = await stream(...asRoot(process.execPath, [script, ...ON_SMALL_HOST]), { HOLDFAST_TEST_TOTALS: totals });
  return readTotals(totals, code);
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

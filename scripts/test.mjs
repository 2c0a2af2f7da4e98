// `npm test`: lint, types, then every test. `npm test -- <vitest arguments>` runs the tests they select, and only
// those. The last line is `N passed, N failed`, and `0 failed` means that everything is well: a failed check, a test
// file that does not load and an error outside of any test count as failures too.
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asRoot, capture, handOver, main, root } from "./run.mjs";
import { setup } from "./setup.mjs";

const CHECKS = [
  { name: "biome", script: "@biomejs/biome/bin/biome", args: ["check", "--error-on-warnings"] },
  { name: "eslint", script: "eslint/bin/eslint.js", args: ["--max-warnings=0"] },
  { name: "tsc", script: "typescript/bin/tsc", args: ["-p", "tsconfig.check.json", "--pretty", "false"] },
];

await main(async () => {
  await setup({ test: true });
  const selection = process.argv.slice(2);
  const failedChecks = selection.length === 0 ? await runChecks() : 0;
  const tests = await runTests(selection);

  const failed = tests.failed + failedChecks;
  console.log(`${tests.passed} passed, ${failed} failed${tests.skipped > 0 ? `, ${tests.skipped} skipped` : ""}`);
  return failed === 0 ? 0 : 1;
});

/** All three side by side; a failure of one hides neither the others nor the tests. Resolves to how many failed. */
async function runChecks() {
  const start = performance.now();
  const results = await Promise.all(
    CHECKS.map(async ({ name, script, args }) => {
      const { code, output } = await capture(process.execPath, [join(root, "node_modules", script), ...args]);
      return { name, code, output };
    }),
  );
  const failed = results.filter(({ code }) => code !== 0);
  for (const { name, output } of failed) console.log(`${output.trimEnd()}\n\n${name} found problems, see above.\n`);
  const passed = results.filter(({ code }) => code === 0).map(({ name }) => name);
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  if (passed.length > 0) console.log(`${passed.join(", ")}: no problems (${seconds} s)`);
  return failed.length;
}

async function runTests(selection) {
  const directory = mkdtempSync(join(tmpdir(), "holdfast-test-"));
  try {
    const totals = join(directory, "totals.json");
    const vitest = join(root, "node_modules/vitest/vitest.mjs");
    const args = [vitest, "run", "--reporter=default", "--reporter=./scripts/count-reporter.mjs", ...selection];
    // Whoever names a file that is not there wants to know; an empty project in a full run is no failure.
    if (selection.length > 0) args.push("--passWithNoTests=false");
    const plain = process.stdout.isTTY ? {} : { NO_COLOR: "1" };
    const code = await handOver(...asRoot(process.execPath, args), { HOLDFAST_TEST_TOTALS: totals, ...plain });
    return readTotals(totals, code);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function readTotals(path, code) {
  const totals = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : { passed: 0, failed: 0, skipped: 0 };
  // vitest knows of failures that no test shows, such as a wrong option or its own death.
  if (code !== 0 && totals.failed === 0) totals.failed = 1;
  return totals;
}

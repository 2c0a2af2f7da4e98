// `npm run test:small-host`: the tests on the kernel, with everything that runs them, in a cgroup of 2 GiB and 400
// processes. `npm run test:small-host -- <test files>` runs those. Only this script stays outside, to tell what it came to.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { EnclosingCgroup } from "./enclosing-cgroup.mjs";
import { asRoot, handOver, isRoot, main, root, run, stream } from "./run.mjs";
import { setup } from "./setup.mjs";
import { describeTotals, ISOLATED, only, runVitest, sum } from "./vitest.mjs";

const MIB = 1024 * 1024;
const LIMITS = { memoryBytes: 2048 * MIB, pids: 400 };
/** Those that use no kernel need no small host. */
const PROJECTS = ["guest", "engine", "security", "server", "e2e", "contract", "images"];
/** What ends by itself, such as a namespace and its processes, has this long. */
const SETTLE_MS = 3000;

await main(async () => {
  const selection = process.argv.slice(2);
  if (!isRoot) return handOver(...asRoot(process.execPath, [fileURLToPath(import.meta.url), ...selection]));
  await setup({ test: true });
  // A build takes more memory than running what it makes: that is no part of what a host has to carry.
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  await run(process.execPath, [tsc, "-b", "packages/cli"], "TypeScript found errors; `npm run build` shows them all.");
  const { totals, figures } = await runInside(selection);
  const problems = problemsOf(figures);
  for (const problem of problems) console.log(problem);
  report(figures);
  const all = sum([...totals.values(), { passed: 0, failed: problems.length, skipped: 0 }]);
  if (process.env.HOLDFAST_TEST_TOTALS !== undefined) {
    writeFileSync(process.env.HOLDFAST_TEST_TOTALS, JSON.stringify(all));
  }
  if (totals.size > 1) for (const [name, part] of totals) console.log(`${name}: ${describeTotals(part)}`);
  console.log(`small host: ${describeTotals(all)}`);
  return all.failed === 0 ? 0 : 1;
});

async function runInside(selection) {
  const cgroup = new EnclosingCgroup(LIMITS);
  const directory = mkdtempSync(join(tmpdir(), "holdfast-small-"));
  const totals = new Map();
  try {
    const runs =
      selection.length === 0
        ? PROJECTS.map((name) => [name, only([name])])
        : [["selection", [...selection, "--passWithNoTests=false"]]];
    const before = [...cgroup.entering, ...ISOLATED];
    for (const [name, args] of runs) {
      const env = { HOLDFAST_TEST_CGROUP: cgroup.name };
      totals.set(name, await runVitest(directory, name, stream, before, args, env));
    }
    await settle(cgroup);
    return { totals, figures: cgroup.finish() };
  } finally {
    rmSync(directory, { recursive: true, force: true });
    cgroup.remove();
  }
}

async function settle(cgroup) {
  for (const deadline = Date.now() + SETTLE_MS; Date.now() < deadline; await sleep(50)) {
    const { processes, cgroups } = cgroup.left();
    if (processes.length === 0 && cgroups.length === 0) return;
  }
}

/** Each counts as a failed test. */
function problemsOf({ killsOutside, victimsOutside, processes, cgroups }) {
  const problems = [];
  if (killsOutside > 0) problems.push(`killed for memory outside of any sandbox, in ${victimsOutside.join(", ")}`);
  if (processes.length > 0) problems.push(`processes left: ${processes.join("; ")}`);
  if (cgroups.length > 0) problems.push(`cgroups left: ${cgroups.join(", ")}`);
  return problems.map((problem) => `small host: ${problem}`);
}

function report({ peakBytes, peakHeldBytes, peakPids, refusedForks, killsOutside, killsInSandboxes, ranOut, ...left }) {
  const mib = (bytes) => `${Math.ceil(bytes / MIB)} MiB`;
  const facts = [
    `${mib(LIMITS.memoryBytes)}, at most ${mib(peakHeldBytes)} held (${mib(peakBytes)} with page cache)`,
    `${LIMITS.pids} processes, at most ${peakPids}; ${refusedForks} refused outside of sandboxes`,
    `${killsOutside} killed for memory outside of sandboxes, ${killsInSandboxes} in them, ${ranOut} of all because the whole was full`,
    `${left.processes.length} processes and ${left.cgroups.length} cgroups left`,
  ];
  for (const fact of facts) console.log(`small host: ${fact}`);
}

import { chmodSync, cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { DoctorReport } from "@holdfast/engine";
import { expect, test } from "vitest";
import { CLI, CliProcess, useCli } from "./use-cli.js";

const cli = useCli();

test("doctor is content with this host, says by what, and proves it with a sandbox", async () => {
  const result = await cli.holdfast(["doctor"]);
  expect(result.stdout.toString()).toMatch(/^memory limit +ok +cgroup v[12] memory at \//m);
  expect(result.stdout.toString()).toMatch(/^a real sandbox +ok +made, ran true and was removed in \d+ ms$/m);
  expect(result).toMatchObject({ code: 0, stderr: "" });
});

test("doctor --json has a row for everything the engine stands on", async () => {
  const result = await cli.holdfast(["doctor", "--json"]);
  const { ok, rows } = JSON.parse(result.stdout.toString()) as DoctorReport;
  expect(ok).toBe(true);
  for (const row of rows) {
    expect(row).toMatchObject({ name: expect.any(String) as string, by: expect.any(String) as string });
    expect(row.state === "ok" || row.remedy !== undefined).toBe(true);
  }
  const names = [
    "kernel",
    "root",
    "bubblewrap",
    "user namespaces",
    "memory limit",
    "process limit",
    "disk limit",
    "a real sandbox",
  ];
  expect(rows.filter((row) => row.required).map((row) => row.name)).toEqual(expect.arrayContaining(names));
});

test("the weaker pool is called weak", async () => {
  const result = await cli.holdfast(["doctor", "--pool", "dir", "--json"]);
  const { rows } = JSON.parse(result.stdout.toString()) as DoctorReport;
  expect(rows.find((row) => row.name === "disk limit")?.state).toBe("weak");
  expect(rows.find((row) => row.name === "a real sandbox")?.state).toBe("ok");
});

test("without root and without cgroups doctor exits with 1 and names the remedies, and run refuses", async () => {
  // Nobody may read a checkout below /root: a copy, where everybody may.
  const copy = mkdtempSync(join(tmpdir(), "holdfast-copy-"));
  try {
    const root = join(dirname(CLI), "../../..");
    for (const part of [
      "packages",
      "node_modules/commander",
      "node_modules/@holdfast",
      "guest/build/holdfast-guest",
      "guest/build/holdfast-launch",
    ]) {
      // Links lead to the copies: nobody may look into a checkout in root's home.
      cpSync(join(root, part), join(copy, part), { recursive: true, verbatimSymlinks: true });
    }
    chmodSync(copy, 0o755);
    const asNobody = (...args: string[]) => {
      const main = join(copy, "packages/cli/dist/main.js");
      const drop = ["--reuid=65534", "--regid=65534", "--clear-groups", process.execPath, main, ...args];
      return new CliProcess("setpriv", drop, { cwd: "/" }).ended;
    };
    const doctor = await asNobody("doctor");
    expect(doctor.code).toBe(1);
    expect(doctor.stdout.toString()).toMatch(/^root +missing .*\n +remedy: Run it with sudo/m);
    expect(doctor.stdout.toString()).toMatch(/^a real sandbox +missing/m);
    const run = await asNobody("run", "--", "id");
    expect(run).toMatchObject({ code: 125 });
    expect(run.stdout.toString()).toBe("");
    expect(run.stderr).toMatch(/needs root.*\[host_unsupported\]\n {2}Run it with sudo/);
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
});

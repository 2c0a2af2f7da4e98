import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parseReport, useCli } from "./use-cli.js";

const cli = useCli();
const run = (...args: string[]) => cli.holdfast(["run", ...args]);

describe("the result as JSON", () => {
  test("exited", async () => {
    const result = await run("--json", "--", "sh", "-c", "printf no-newline; echo oops >&2; exit 3");
    const [first, ...rest] = result.stdout.toString().split("\n");
    expect(first).toBe("no-newline");
    expect(rest).toHaveLength(2);
    expect(parseReport(result.stdout)).toEqual({
      cause: { kind: "exited", code: 3 },
      incidents: [],
      exitCode: 3,
      usage: {
        memoryPeakBytes: expect.any(Number) as number,
        cpuMs: expect.any(Number) as number,
        wallMs: expect.any(Number) as number,
        pidsPeak: expect.any(Number) as number,
        stdoutBytes: 10,
        stderrBytes: 5,
      },
      message: "Exited with code 3.",
      sandboxId: expect.stringMatching(/^[a-z0-9]+$/) as string,
    });
  });

  test("signaled", async () => {
    const report = await cli.report(["--", "sh", "-c", "kill -SEGV $$"]);
    expect(report).toMatchObject({ cause: { kind: "signaled", signal: "SIGSEGV", by: "program" }, exitCode: 139 });
  });

  test("timed_out", async () => {
    const report = await cli.report(["--timeout", "300ms", "--", "sleep", "100"]);
    expect(report).toMatchObject({ cause: { kind: "timed_out", limitMs: 300 }, exitCode: 124 });
  });

  test("out_of_memory", async () => {
    const report = await cli.report(["--memory", "32m", "--", "tail", "/dev/zero"]);
    expect(report).toMatchObject({
      cause: {
        kind: "out_of_memory",
        scope: "sandbox",
        limitBytes: 32 * 1024 ** 2,
        kills: 1,
        victims: [{ name: "tail" }],
      },
      exitCode: 137,
    });
  });

  test("out_of_memory that a shell hides is an incident, and is told", async () => {
    const result = await run("--json", "--memory", "32m", "--", "sh", "-c", "tail /dev/zero; exit 0");
    expect(result.code).toBe(0);
    expect(result.stderr).toContain("holdfast: On the way, 1 process was killed for memory");
    expect(parseReport(result.stdout)).toMatchObject({
      cause: { kind: "exited", code: 0 },
      incidents: [{ kind: "out_of_memory", limitBytes: 32 * 1024 ** 2 }],
    });
  });

  test("out_of_pids", async () => {
    const report = await cli.report([
      "--pids",
      "32",
      "--timeout",
      "30s",
      "--",
      "dash",
      "-c",
      "while :; do sleep 100 & done",
    ]);
    expect(report.cause).toMatchObject({ kind: "out_of_pids", limit: 32 });
    expect(report.exitCode).toBeGreaterThan(0);
  });

  test("out_of_disk", async () => {
    const report = await cli.report(["--disk", "32m", "--", "dd", "if=/dev/zero", "of=/tmp/x", "bs=1M"]);
    expect(report).toMatchObject({ cause: { kind: "out_of_disk", limitBytes: 32 * 1024 ** 2 }, exitCode: 1 });
  });

  test("a failure of ours has an error and no cause", async () => {
    const report = await cli.report(["--", "no-such-program"]);
    expect(report).toMatchObject({
      cause: null,
      usage: null,
      exitCode: 127,
      error: { code: "command_failed_to_start" },
    });
  });

  test("--json-file leaves stdout alone and replaces the file as a whole", async () => {
    const file = join(cli.stateDirectory, "result.json");
    writeFileSync(file, "old");
    const result = await run("--json-file", file, "--", "echo", "hi");
    expect(result.stdout.toString()).toBe("hi\n");
    expect(JSON.parse(readFileSync(file, "utf8"))).toMatchObject({ cause: { kind: "exited", code: 0 } });
    expect(readdirSync(cli.stateDirectory).filter((name) => name.startsWith("result.json"))).toEqual(["result.json"]);
    rmSync(file);
  });
});

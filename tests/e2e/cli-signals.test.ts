import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { CLI, parseReport, useCli } from "./use-cli.js";

const cli = useCli();
const STUBBORN =
  "trap '' TERM INT HUP; (setsid sh -c \"trap '' TERM; while :; do sleep 1; done\" &); echo ready; while :; do sleep 1; done";

describe("signals", () => {
  test.each(["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"] as const)("%s goes to the command", async (signal) => {
    const run = cli.start(["run", "--json", "--", "sh", "-c", "echo ready; exec sleep 100"]);
    await run.says("ready");
    run.child.kill(signal);
    const result = await run.ended;
    expect(parseReport(result.stdout).cause).toMatchObject({ kind: "signaled", signal, by: "caller" });
    expect(result.code).toBeGreaterThan(128);
  });

  test("a command may handle the signal and end as it likes", async () => {
    const run = cli.start([
      "run",
      "--",
      "sh",
      "-c",
      "trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.1; done",
    ]);
    await run.says("ready");
    run.child.kill("SIGTERM");
    const result = await run.ended;
    expect(result.stdout.toString()).toBe("ready\nbye\n");
    expect(result.code).toBe(9);
  });

  test("a command that ignores it is ended after the grace, with all it started", async () => {
    const run = cli.start(["run", "--json", "--grace", "500ms", "--", "sh", "-c", STUBBORN]);
    await run.says("ready");
    const start = performance.now();
    run.child.kill("SIGTERM");
    const result = await run.ended;
    expect(performance.now() - start).toBeLessThan(3000);
    expect(parseReport(result.stdout)).toMatchObject({ cause: { kind: "canceled", by: "SIGTERM" }, exitCode: 143 });
    expect(result.code).toBe(143);
  });

  test("a second SIGINT does not wait for the grace", async () => {
    const run = cli.start(["run", "--grace", "60s", "--", "sh", "-c", STUBBORN]);
    await run.says("ready");
    run.child.kill("SIGINT");
    await new Promise((resolve) => setTimeout(resolve, 100));
    const start = performance.now();
    run.child.kill("SIGINT");
    expect((await run.ended).code).toBe(130);
    expect(performance.now() - start).toBeLessThan(3000);
  });

  test("a signal at any moment of the start leaves nothing behind", async () => {
    for (const delayMs of [40, 80, 120, 160, 200, 250, 300]) {
      const run = cli.start(["run", "--grace", "200ms", "--", "sleep", "100"]);
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      run.child.kill("SIGTERM");
      const { stderr } = await run.ended;
      expect(stderr).not.toMatch(/engine_fault|guest_fault/);
    }
  });
});

/** Host pids of everything in the sandboxes of this file's state directory. */
function sandboxProcesses(ids: readonly string[]): string[] {
  return readdirSync("/proc").filter((pid) => {
    try {
      return /^\d+$/.test(pid) && ids.some((id) => readFileSync(`/proc/${pid}/cgroup`, "utf8").includes(`/${id}`));
    } catch {
      // It ended while we looked.
      return false;
    }
  });
}

test("after our own SIGKILL the sandbox ends by itself, and the next run sweeps the rest", async () => {
  const run = cli.start(["run", "--", "sh", "-c", STUBBORN]);
  await run.says("ready");
  const ids = readdirSync(join(cli.stateDirectory, "sandboxes"));
  expect(ids).toHaveLength(1);
  expect(sandboxProcesses(ids).length).toBeGreaterThan(2);
  run.child.kill("SIGKILL");
  await run.ended;
  await expect.poll(() => sandboxProcesses(ids), { timeout: 5000 }).toEqual([]);
  const next = await cli.holdfast(["run", "--", "echo", "next"]);
  expect(next.stdout.toString()).toBe("next\n");
  expect(next.stderr).toContain(`holdfast: swept away what was left of sandbox ${ids[0]}`);
  const sweep = await cli.holdfast(["sweep"]);
  expect(sweep).toMatchObject({ code: 0, stderr: "holdfast: nothing was left to sweep away\n" });
});

describe("a terminal", () => {
  /** script(1) gives us one: what it is sent is typed, what it prints is shown. */
  const inTerminal = (script: string) =>
    cli.shell(
      `exec script -qec '${`holdfast() { "${process.execPath}" "${CLI}" "$@"; }; ${script}`.replaceAll("'", "'\\''")}' /dev/null`,
    );

  test("-it gives the command one of our size, with our keys", async () => {
    const run = inTerminal(
      "stty cols 91 rows 33; holdfast run -it -- sh -c 'test -t 0 && test -t 1 && stty size; read line; echo got: $line; exit 4'",
    );
    await run.says("33 91");
    run.child.stdin.write("keys\r");
    await run.says("got: keys");
    expect((await run.ended).code).toBe(4);
  });

  test("the size follows ours", async () => {
    const inside = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done";
    const run = inTerminal(
      `stty cols 80 rows 24; (sleep 1.5; stty cols 101 rows 41 < /dev/tty) & holdfast run -it -- sh -c "${inside}"`,
    );
    await run.says("41 101");
    await run.ended;
  });

  test("Ctrl-C is a key like any other, and the terminal is as before afterwards", async () => {
    const inside = "trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.05; done";
    const run = inTerminal(
      `before=$(stty -g); holdfast run -it -- sh -c "${inside}"; echo code $?; [ "$before" = "$(stty -g)" ] && echo restored`,
    );
    await run.says("ready");
    run.child.stdin.write("\u0003");
    await run.says("code 7");
    await run.says("restored");
    await run.ended;
  });

  test("the terminal is as before also after a signal to us", async () => {
    const run = inTerminal(
      `before=$(stty -g); (sleep 1.5; pkill -TERM -P $$ -f main.js) & holdfast run -it -- sleep 100; echo code $?; [ "$before" = "$(stty -g)" ] && echo restored`,
    );
    await run.says("code 143");
    await run.says("restored");
    await run.ended;
  });

  test("-it without one is refused", async () => {
    const result = await cli.holdfast(["run", "-it", "--", "true"]);
    expect(result.code).toBe(125);
    expect(result.stderr).toMatch(/^holdfast: --tty with --interactive needs a terminal/);
  });

  test("-t alone gives the command a terminal although we have none", async () => {
    const result = await cli.holdfast(["run", "-t", "--", "sh", "-c", "test -t 1 && stty size && echo $TERM"], {
      env: { TERM: "vt220" },
    });
    expect(result.stdout.toString()).toBe("24 80\r\nvt220\r\n");
  });
});

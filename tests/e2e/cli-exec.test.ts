import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { CommandInfo } from "@holdfast/protocol";
import { beforeEach, describe, expect, test } from "vitest";
import { CLI, parseReport } from "./use-cli.js";
import { ServerInUse } from "./use-server.js";

const server = new ServerInUse();

describe("exec", () => {
  let box: string;
  beforeEach(async () => {
    box = await server.ok("create", "--memory", "128m", "--timeout", "10m");
  });

  test("stdout, stderr and the exit code are the command's", async () => {
    const result = await server.holdfast("exec", box, "--", "sh", "-c", "printf out; printf err >&2; exit 3");
    expect(result).toMatchObject({ code: 3, stderr: "err" });
    expect(result.stdout.toString()).toBe("out");
  });

  test("options may stand before and behind the sandbox, and those of the program are its own", async () => {
    expect(
      await server.ok("exec", "-e", "A=1", box, "-e", "B=2", "--cwd", "/tmp", "--", "sh", "-c", "echo $A$B $PWD"),
    ).toBe("12 /tmp");
    expect(await server.ok("exec", box, "echo", "-t", "--user")).toBe("-t --user");
    expect(await server.ok("exec", "-u", "root", box, "--", "id", "-u")).toBe("0");
  });

  test("every byte of a flood arrives, also through a slow reader", async () => {
    const script = `holdfast exec ${box} -- sh -c 'seq 1 3000000' | { sleep 1; sha256sum; }`;
    const result = await server.shell(script).ended;
    const expected = execFileSync("sh", ["-c", "seq 1 3000000 | sha256sum"]);
    expect(result.stderr).toBe("");
    expect(result.stdout.toString()).toBe(expected.toString());
  });

  test("stdin is passed on, byte for byte, and its end is the command's", async () => {
    const bytes = randomBytes(5_000_000);
    const file = join(server.scratch, "input");
    writeFileSync(file, bytes);
    const { stdout } = await server.shell(`holdfast exec ${box} -i -- sha256sum < '${file}'`).ended;
    expect(stdout.toString()).toContain(createHash("sha256").update(bytes).digest("hex"));
  });

  test("a cause is told on stderr, and as JSON", async () => {
    const result = await server.holdfast("exec", box, "--json", "--", "tail", "/dev/zero");
    expect(result.code).toBe(137);
    expect(result.stderr).toContain("holdfast: Killed for memory: limit 128 MiB");
    expect(parseReport(result.stdout)).toMatchObject({
      cause: { kind: "out_of_memory", scope: "sandbox" },
      exitCode: 137,
      sandboxId: box,
    });
    expect(await server.holdfast("exec", box, "--timeout", "300ms", "--", "sleep", "60")).toMatchObject({
      code: 124,
      stderr: expect.stringContaining("Timed out: limit 300 ms") as string,
    });
    expect(await server.holdfast("exec", box, "--", "no-such-program")).toMatchObject({ code: 127 });
    expect(await server.holdfast("exec", box, "--bogus", "--", "true")).toMatchObject({ code: 125 });
  });

  test("a reader that goes away ends the command", async () => {
    const script = `holdfast exec ${box} -- yes | head -1; echo "\${PIPESTATUS[0]}"`;
    const result = await server.shell(script).ended;
    expect(result.stdout.toString()).toBe("y\n141\n");
    expect(result.stderr).toBe("");
    await expect.poll(async () => server.ok("exec", box, "--", "sh", "-c", "pgrep -x yes || echo none")).toBe("none");
  });

  test("a signal goes to the command, a second one ends it", async () => {
    const polite = server.start(
      "exec",
      box,
      "--",
      "sh",
      "-c",
      "trap 'echo bye; exit 5' INT; echo ready; while :; do sleep 0.1; done",
    );
    await polite.says("ready");
    polite.child.kill("SIGINT");
    expect(await polite.ended).toMatchObject({ code: 5 });
    const stubborn = server.start(
      "exec",
      box,
      "--",
      "sh",
      "-c",
      "trap '' INT; echo ready; while :; do sleep 0.1; done",
    );
    await stubborn.says("ready");
    stubborn.child.kill("SIGINT");
    await new Promise((resolve) => setTimeout(resolve, 200));
    stubborn.child.kill("SIGINT");
    expect(await stubborn.ended).toMatchObject({ code: 130 });
  });

  test("a terminal is a terminal, raw, in our size, and is given back", async () => {
    const inside = "test -t 0 && test -t 1 && stty size; read line; echo got: $line; exit 4";
    const outer = `stty cols 91 rows 33; before=$(stty -g); holdfast exec ${box} -it -- sh -c "${inside.replaceAll("$", "\\$")}"; echo code $?; [ "$before" = "$(stty -g)" ] && echo restored`;
    const terminal = server.shell(
      `exec script -qec '${`holdfast() { "${process.execPath}" "${CLI}" "$@"; }; ${outer}`.replaceAll("'", "'\\''")}' /dev/null`,
    );
    await terminal.says("33 91");
    terminal.child.stdin.write("typed\r");
    const { stdout } = await terminal.ended;
    expect(stdout.toString()).toContain("got: typed");
    expect(stdout.toString()).toContain("code 4");
    expect(stdout.toString()).toContain("restored");
  });

  test("a detached command runs on, and its output is shown when asked for", async () => {
    const number = await server.ok(
      "exec",
      box,
      "--detach",
      "--",
      "sh",
      "-c",
      "echo one; echo two >&2; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo three",
    );
    expect(number).toBe("1");
    const soFar = await server.holdfast("logs", box);
    expect(soFar).toMatchObject({ code: 0, stderr: "two\n" });
    expect(soFar.stdout.toString()).toBe("one\n");
    const following = server.start("logs", box, number, "--follow");
    await following.says("one");
    await server.ok("exec", box, "--", "touch", "/tmp/go");
    expect((await following.ended).stdout.toString()).toBe("one\nthree\n");
    const commands = await server.json<CommandInfo[]>("logs", box, "--list", "--json");
    expect(commands.map(({ id, ending }) => [id, ending?.exitCode])).toEqual([
      [2, 0],
      [1, 0],
    ]);
    expect(await server.ok("logs", box, "--list")).toMatch(/^1 +\d+ .* exited +0 +sh -c echo one/m);
    expect(await server.holdfast("logs", box, "99")).toMatchObject({ code: 125 });
  });
});

import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fitting } from "../helpers/needs-host.js";
import { CLI, useCli } from "./use-cli.js";

const cli = useCli();
const run = (...args: string[]) => cli.holdfast(["run", ...args]);

describe("exit codes", () => {
  test("the command's own, and nothing else is said", async () => {
    expect(await run("--", "true")).toMatchObject({ code: 0, stderr: "" });
    expect(await run("--", "sh", "-c", "exit 3")).toMatchObject({ code: 3, stderr: "" });
  });

  test("124 when it timed out, within the timeout and the grace", async () => {
    const result = await run(
      "--timeout",
      "500ms",
      "--grace",
      "500ms",
      "--",
      "sh",
      "-c",
      "trap '' TERM; while :; do sleep 1; done",
    );
    expect(result.code).toBe(124);
    expect(result.stderr).toMatch(/^holdfast: Timed out: limit 500 ms\./);
    expect(result.tookMs).toBeLessThan(4000);
  });

  test("125 when holdfast cannot do it", async () => {
    const result = await run("--image", "/nowhere", "--", "true");
    expect(result.code).toBe(125);
    expect(result.stderr).toMatch(/^holdfast: no directory at \/nowhere \[image_not_found\]/);
    expect(result.stderr).toContain("An image is a name (`holdfast image ls` shows them), `host`, or");
  });

  test("126 when it cannot be executed, 127 when it is not found", async () => {
    const denied = await run("--", "/etc/passwd");
    expect(denied.code).toBe(126);
    expect(denied.stderr).toContain("/etc/passwd");
    const missing = await run("--", "no-such-program");
    expect(missing.code).toBe(127);
    expect(missing.stderr).toContain("no-such-program");
  });

  test("137 when it was killed for memory, with whom and what to do", async () => {
    const result = await run("--memory", "32m", "--", "tail", "/dev/zero");
    expect(result.code).toBe(137);
    expect(result.stderr).toMatch(/^holdfast: Killed for memory: limit 32 MiB.*tail.*Try --memory 64m\.\n$/);
  });

  test("128 + n when signal n ended it", async () => {
    const result = await run("--", "sh", "-c", "kill -KILL $$");
    expect(result.code).toBe(137);
    expect(result.stderr).toContain("SIGKILL");
  });
});

describe("wrong calls", () => {
  test.each([
    ["--memory", ["--memory", "lots", "--", "true"]],
    ["--memory", ["--memory", "1k", "--", "true"]],
    ["--pids", ["--pids", "few", "--", "true"]],
    ["--cpus", ["--cpus", "x", "--", "true"]],
    ["--disk", ["--disk", "-1", "--", "true"]],
    ["--timeout", ["--timeout", "soon", "--", "true"]],
    ["--env", ["--env", "=", "--", "true"]],
    ["--mount", ["--mount", "/nowhere:/x", "--", "true"]],
    ["--mount", ["--mount", "/tmp:/proc/x", "--", "true"]],
    ["--hostname", ["--hostname", "a b", "--", "true"]],
    ["--pool", ["--pool", "zfs", "--", "true"]],
    ["--json-file", ["--json-file", "/nowhere/x", "--", "true"]],
    ["--momory", ["--momory", "1g", "--", "true"]],
    ["command", []],
  ])("%s is named, and the code is 125", async (flag, args) => {
    const result = await run(...args);
    expect(result.code).toBe(125);
    expect(result.stderr).toContain(flag);
    expect(result.stderr).not.toMatch(/\n\s+at /);
  });

  test("options after the command are the command's", async () => {
    const result = await run("echo", "--memory", "-x", "--");
    expect(result.stdout.toString()).toBe("--memory -x --\n");
  });
});

describe("input and output", () => {
  test("bytes pass unchanged, both ways", async () => {
    const every = 'for i in $(seq 0 255); do printf "\\\\$(printf %o $i)"; done';
    const result = await run("--", "bash", "-c", every);
    expect(result.stdout).toEqual(Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)));
    const echoed = await cli.holdfast(["run", "-i", "--", "od", "-An", "-tx1"], { input: "\u0000\u0001\n" });
    expect(echoed.stdout.toString().trim()).toBe("00 01 0a");
  });

  test("stdout and stderr stay apart", async () => {
    const result = await run("--", "sh", "-c", "echo out; echo err >&2");
    expect(result.stdout.toString()).toBe("out\n");
    expect(result.stderr).toBe("err\n");
  });

  test("-i passes stdin and its end", async () => {
    const input = "line\n".repeat(200_000);
    const result = await cli.holdfast(["run", "-i", "--", "wc", "-l"], { input });
    expect(result.stdout.toString().trim()).toBe("200000");
  });

  test("without -i stdin is empty, also when ours is not", async () => {
    const result = await cli.holdfast(["run", "--", "wc", "-c"], { input: "ignored" });
    expect(result.stdout.toString().trim()).toBe("0");
  });

  test("a command that does not read its stdin is no failure", async () => {
    const result = await cli.holdfast(["run", "-i", "--", "true"], { input: "x".repeat(1_000_000) });
    expect(result).toMatchObject({ code: 0, stderr: "" });
  });

  test("a slow reader loses nothing", async () => {
    const { ended } = cli.shell("holdfast run -- head -c 20000000 /dev/zero | (sleep 1; wc -c)");
    expect((await ended).stdout.toString().trim()).toBe("20000000");
  });

  test("a reader that goes away ends the command", async () => {
    const { ended } = cli.shell("holdfast run -- yes | head -1; echo $PIPESTATUS");
    const result = await ended;
    expect(result.stdout.toString()).toBe("y\n141\n");
    expect(result.stderr).toBe("");
    expect(result.tookMs).toBeLessThan(10_000);
  });

  test("output that cannot be written is a failure", async () => {
    const result = await cli.shell("holdfast run -- echo lost > /dev/full; echo $? >&2").ended;
    expect(result.stderr).toMatch(/^holdfast: the output cannot be written: .*ENOSPC.*\n125\n$/);
  });

  test("a reader that never reads does not outlast the timeout", async () => {
    const { ended } = cli.shell(
      "holdfast run --timeout 500ms --grace 100ms -- yes | (sleep 8; head -c 1); echo $PIPESTATUS",
    );
    expect((await ended).stdout.toString()).toBe("y124\n");
  });
});

describe("what is inside", () => {
  let directory: string;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), "holdfast-mount-"));
    chmodSync(directory, 0o755);
    mkdirSync(join(directory, "sub"));
    writeFileSync(join(directory, "file"), "from outside\n");
  });
  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  test("none of our variables", async () => {
    const result = await cli.holdfast(["run", "--", "env"], { env: { SECRET_TOKEN: "hush" } });
    expect(result.stdout.toString()).not.toMatch(/SECRET|hush|HOLDFAST|NODE|npm_/);
  });

  test("the variables that --env names", async () => {
    const args = ["run", "-e", "A=b=c", "-e", "TAKEN", "--", "sh", "-c", "echo $A $TAKEN"];
    const result = await cli.holdfast(args, { env: { TAKEN: "from here" } });
    expect(result.stdout.toString()).toBe("b=c from here\n");
  });

  test("the user, the directory and the host's name that were asked for", async () => {
    const ask = ["sh", "-c", "id -u; pwd; hostname"];
    expect((await run("--", ...ask)).stdout.toString()).toBe("1000\n/home/user\nsandbox\n");
    const asked = await run("-u", "root", "-w", "/var", "--hostname", "elsewhere", "--", ...ask);
    expect(asked.stdout.toString()).toBe("0\n/var\nelsewhere\n");
  });

  test("a mount is writable unless it is ro", async () => {
    const writable = await run(
      "-u",
      "root",
      "--mount",
      `${directory}:/data`,
      "--",
      "sh",
      "-c",
      "cat /data/file; echo new > /data/sub/made",
    );
    expect(writable.stdout.toString()).toBe("from outside\n");
    expect(writable.code).toBe(0);
    expect(readFileSync(join(directory, "sub/made"), "utf8")).toBe("new\n");
    const readOnly = await run(
      "-u",
      "root",
      "--mount",
      `${directory}:/data:ro`,
      "--",
      "sh",
      "-c",
      "cat /data/file; echo x > /data/file",
    );
    expect(readOnly.stdout.toString()).toBe("from outside\n");
    expect(readOnly.code).not.toBe(0);
    expect(readFileSync(join(directory, "file"), "utf8")).toBe("from outside\n");
  });

  test("a relative mount starts where we are", async () => {
    const result = await cli.holdfast(["run", "--mount", "sub/..:/data:ro", "--", "cat", "/data/file"], {
      cwd: directory,
    });
    expect(result.stdout.toString()).toBe("from outside\n");
  });
});

test("runs side by side do not disturb each other, nor sweep each other away", async () => {
  // None has to wait for another, which it would say: with what each takes for itself, a small host carries so many.
  const atOnce = fitting(8, { memoryBytes: 128 * 1024 ** 2, pids: 16 + 12 });
  const script = `seq 40 | xargs -P ${atOnce} -I{} sh -c 'node "$CLI" run --memory 64m --pids 16 -- echo {}'`;
  const result = await cli.shell(`export CLI="${CLI}"; ${script}`).ended;
  expect(result.stderr).toBe("");
  const numbers = result.stdout.toString().trim().split("\n").map(Number);
  expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: 40 }, (_, i) => i + 1));
});

/** How commands start, what they are given, how they end. */
import { createHash, randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { ready } from "../../helpers/output-reader.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { collect, MIB, run, SMALL_LIMITS, shell } from "../../helpers/use-engine.js";

const sha256 = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");

export function describeCommands(open: OpenEngine): void {
  describe("commands", () => {
    const use = useSharedEngine(open);

    it.each([0, 1, 42, 255])("reports exit code %i", async (code) => {
      const result = await shell(await use.create(), `exit ${code}`);
      expect(result.cause).toEqual({ kind: "exited", code });
      expect(result.exitCode).toBe(code);
      expect(result.incidents).toEqual([]);
    });

    it.each([
      ["SIGSEGV", 139],
      ["SIGKILL", 137],
      ["SIGTERM", 143],
    ])("reports %s that the program got from itself", async (signal, exitCode) => {
      const result = await shell(await use.create(), `kill -${signal.slice(3)} $$`);
      expect(result.cause).toEqual({ kind: "signaled", signal, by: "program" });
      expect(result.exitCode).toBe(exitCode);
    });

    it("tells the caller's own signal from the program's", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: ["sleep", "1000"] });
      await command.signal("SIGUSR1");
      expect((await command.ended).cause).toEqual({ kind: "signaled", signal: "SIGUSR1", by: "caller" });
    });

    it("carries usage and a sentence for a person", async () => {
      const result = await shell(await use.create(), "echo out; echo error >&2; exit 3");
      expect(result.usage).toMatchObject({ stdoutBytes: 4, stderrBytes: 6 });
      expect(result.usage.cpuMs).toBeGreaterThan(0);
      expect(result.usage.wallMs).toBeGreaterThan(0);
      expect(result.message).toBe("Exited with code 3.");
    });

    it("has its own environment and nothing of ours", async () => {
      process.env.HOLDFAST_TEST_SECRET = "do not leak";
      try {
        const sandbox = await use.create({ env: { FROM_SANDBOX: "1", OVERRIDDEN: "by nobody" } });
        // The shell adds variables of its own; cat shows what was handed over.
        const result = await run(sandbox, ["cat", "/proc/self/environ"], {
          env: { OVERRIDDEN: "by the command", EMPTY: "" },
        });
        expect(
          result.stdout
            .split("\0")
            .filter((entry) => entry !== "")
            .sort(),
        ).toEqual([
          "EMPTY=",
          "FROM_SANDBOX=1",
          "HOME=/home/user",
          "LOGNAME=user",
          "OVERRIDDEN=by the command",
          "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
          "SHELL=/bin/bash",
          "USER=user",
        ]);
        const ofFirst = await run(sandbox, ["cat", "/proc/1/environ"], { user: "root" });
        expect(ofFirst.stdout).not.toContain("HOLDFAST");
      } finally {
        delete process.env.HOLDFAST_TEST_SECRET;
      }
    });

    it("inherits no descriptor but its three", async () => {
      const result = await run(await use.create(), ["ls", "/proc/self/fd"]);
      // The fourth is the directory that ls reads.
      expect(result.stdout).toBe("0\n1\n2\n3\n");
    });

    it("starts in the user's home, or where it is told", async () => {
      const sandbox = await use.create();
      expect((await run(sandbox, ["pwd"])).stdout).toBe("/home/user\n");
      expect((await run(sandbox, ["pwd"], { user: "root" })).stdout).toBe("/root\n");
      expect((await run(sandbox, ["pwd"], { cwd: "/usr/bin" })).stdout).toBe("/usr/bin\n");
    });

    it.each([
      ["/does/not/exist", "ENOENT"],
      ["/etc/passwd", "ENOTDIR"],
      ["/root", "EACCES"],
    ])("does not start in %s", async (cwd, errno) => {
      const sandbox = await use.create();
      await expect(sandbox.start({ argv: ["pwd"], cwd })).rejects.toMatchObject({
        name: "HoldfastError",
        code: "invalid_argument",
        message: expect.stringContaining(cwd),
        details: { field: "cwd", errno },
      });
    });

    it.each([
      [undefined, "1000 1000 1000 27 100"],
      ["user", "1000 1000 1000 27 100"],
      ["root", "0 0 0"],
      ["1000", "1000 1000 1000 27 100"],
      ["1000:33", "1000 33 33 27 100"],
      ["4242:4243", "4242 4243 4243"],
    ])("runs as user %s", async (user, ids) => {
      const result = await shell(await use.create(), "echo $(id -u) $(id -g) $(id -G)", { user });
      expect(result.stdout.trim()).toBe(ids);
    });

    it.each(["ghost", "user:staff:x", "-1", ""])("refuses the user %j by name", async (user) => {
      const sandbox = await use.create();
      await expect(sandbox.start({ argv: ["id"], user })).rejects.toMatchObject({ code: "user_not_found" });
    });

    it.each([
      ["a program that is not there", ["no-such-program"], 127],
      ["a path that is not there", ["/no/such/program"], 127],
      ["a file that is not executable", ["/etc/passwd"], 126],
      ["a directory", ["/etc"], 126],
    ])("says like a shell that it cannot run %s", async (_what, argv, exitCode) => {
      const sandbox = await use.create();
      await expect(sandbox.start({ argv })).rejects.toMatchObject({
        name: "HoldfastError",
        code: "command_failed_to_start",
        details: { program: argv[0], exitCode },
      });
      expect((await run(sandbox, ["echo", "still here"])).stdout).toBe("still here\n");
    });

    it.each([
      ["no program", { argv: [] }],
      ["an empty program", { argv: [""] }],
      ["NUL in an argument", { argv: ["echo", "a\0b"] }],
      ["an environment name with =", { argv: ["env"], env: { "A=B": "c" } }],
      ["NUL in the environment", { argv: ["env"], env: { A: "\0" } }],
      ["a memory limit of nothing", { argv: ["env"], limits: { memoryBytes: 0 } }],
    ])("refuses %s as invalid", async (_what, spec) => {
      const sandbox = await use.create();
      await expect(sandbox.start(spec)).rejects.toMatchObject({ code: "invalid_argument" });
    });

    it("passes arguments as they are", async () => {
      const args = ["a b", "$HOME", "`id`", "*", "", "ü\n", "-n", "x".repeat(100_000)];
      const result = await run(await use.create(), ["printf", "%s\\0", ...args]);
      expect(result.stdout.split("\0").slice(0, -1)).toEqual(args);
    });

    it("gives a closed stdin unless asked for an open one", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: ["cat"] });
      expect(command.stdin).toBeUndefined();
      expect((await collect(command)).cause).toEqual({ kind: "exited", code: 0 });
    });

    it("carries 10 MB through stdin and stdout unchanged", async () => {
      const sandbox = await use.create();
      const bytes = randomBytes(10_000_000);
      const command = await sandbox.start({ argv: ["cat"], stdin: "open", whenReaderIsSlow: "block" });
      command.stdin?.end(bytes);
      const result = await collect(command);
      expect(result.gaps).toBe(0);
      expect(sha256(result.stdoutBytes)).toBe(sha256(bytes));
    });

    it("survives a program that closes its stdin while we write", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: ["head", "-c", "3"], stdin: "open" });
      command.stdin?.end(Buffer.alloc(4 * MIB, "x"));
      expect((await collect(command)).stdout).toBe("xxx");
      expect((await run(sandbox, ["echo", "still here"])).stdout).toBe("still here\n");
    });

    it("keeps stdout and stderr apart and binary", async () => {
      const script = "head -c 300000 /dev/urandom >f; sha256sum <f >&2; cat f";
      const result = await shell(await use.create(), script, { whenReaderIsSlow: "block" });
      expect(result.stderr.slice(0, 64)).toBe(sha256(result.stdoutBytes));
    });

    it("gives a terminal that can be resized", async () => {
      const sandbox = await use.create();
      const script = "tty; stty size; trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.02; done";
      const command = await sandbox.start({ argv: ["bash", "-c", script], pty: { columns: 100, rows: 30 } });
      const reader = await ready(command);
      expect(reader.text).toMatch(/^\/dev\/pts\/\d+\r\n30 100\r\nready/);
      await command.resize({ columns: 132, rows: 43 });
      expect(await reader.rest()).toContain("43 132");
      expect((await command.ended).cause).toEqual({ kind: "exited", code: 0 });
    });

    it("takes ^C from a terminal as an interrupt", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({
        argv: ["bash", "-c", "echo ready; exec sleep 1000"],
        pty: { columns: 80, rows: 24 },
      });
      await ready(command);
      command.stdin?.write("\x03");
      expect((await command.ended).cause).toEqual({ kind: "signaled", signal: "SIGINT", by: "program" });
    });

    it("runs 100 commands at once", async () => {
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, memoryBytes: 256 * MIB, pids: 256 } });
      const numbers = Array.from({ length: 100 }, (_, i) => i);
      const results = await Promise.all(numbers.map((i) => shell(sandbox, `echo ${i}; sleep 0.2; exit ${i}`)));
      expect(results.map(({ stdout, exitCode }) => [stdout, exitCode])).toEqual(numbers.map((i) => [`${i}\n`, i]));
    });

    it("lists commands with their tags", async () => {
      const sandbox = await use.create();
      const running = await sandbox.start({ argv: ["sleep", "1000"], tag: "a nap" });
      const done = await sandbox.start({ argv: ["echo", "hello"] });
      await done.ended;
      expect(await sandbox.commands()).toEqual([
        {
          id: running.id,
          pid: running.pid,
          tag: "a nap",
          argv: ["sleep", "1000"],
          running: true,
          stdoutBytes: 0,
          stderrBytes: 0,
        },
        {
          id: done.id,
          pid: done.pid,
          tag: undefined,
          argv: ["echo", "hello"],
          running: false,
          stdoutBytes: 6,
          stderrBytes: 0,
        },
      ]);
    });

    it("signals one process or the whole command", async () => {
      const sandbox = await use.create();
      const script = `
        bash -c 'trap "echo child" USR1; echo child-ready; while :; do sleep 0.02; done' &
        trap 'echo parent' USR1
        echo parent-ready
        while :; do sleep 0.02; done`;
      const command = await sandbox.start({ argv: ["bash", "-c", script] });
      const reader = await ready(command, /(child-ready[\s\S]*parent-ready|parent-ready[\s\S]*child-ready)/);
      await command.signal("SIGUSR1");
      expect(await reader.until("parent\n")).not.toContain("child\n");
      await command.signal("SIGUSR1", { whole: true });
      await reader.until(/child\n/);
      await reader.until(/parent\n[\s\S]*parent\n/);
    });

    it("signals nobody outside the command, whole or not", async () => {
      const sandbox = await use.create();
      const neighbour = await sandbox.start({ argv: ["sleep", "1000"] });
      const command = await sandbox.start({ argv: ["sleep", "1000"] });
      await command.signal("SIGKILL", { whole: true });
      await command.ended;
      expect((await sandbox.commands()).find(({ id }) => id === neighbour.id)?.running).toBe(true);
    });

    it("reports an end although a background child holds stdout, and lets that child live", async () => {
      const sandbox = await use.create();
      const result = await shell(sandbox, "sleep 1000 & echo $!");
      expect(result.cause).toEqual({ kind: "exited", code: 0 });
      const pid = result.stdout.trim();
      expect((await run(sandbox, ["cat", `/proc/${pid}/comm`])).stdout).toBe("sleep\n");
    });

    it("cancels a polite program with its last words", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({
        argv: ["bash", "-c", "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.02; done"],
      });
      const reader = await ready(command);
      const ending = await command.cancel("the test");
      expect(ending.cause).toEqual({ kind: "canceled", by: "the test" });
      expect(await reader.rest()).toContain("bye");
    });

    it("refuses a start whose signal is aborted already", async () => {
      const sandbox = await use.create();
      await expect(sandbox.start({ argv: ["true"] }, { signal: AbortSignal.abort() })).rejects.toMatchObject({
        name: "HoldfastError",
        code: "canceled",
      });
      expect(await sandbox.commands()).toEqual([]);
    });

    it("cancels when the caller's signal aborts", async () => {
      const sandbox = await use.create();
      const controller = new AbortController();
      const command = await sandbox.start({ argv: ["sleep", "1000"] }, { signal: controller.signal });
      controller.abort();
      expect((await command.ended).cause).toMatchObject({ kind: "canceled" });
    });
  });
}

import { expect } from "vitest";
import { fitting } from "../../helpers/needs-host.js";
import { type Cases, failure, says, sha256 } from "../cell.js";

const MIB = 1024 * 1024;

export const commandCases: Cases = {
  "a command gives its output, its errors and its exit code": async ({ sandbox }) => {
    expect(await sandbox.commands.run("echo out; echo err >&2")).toEqual({
      exitCode: 0,
      stdout: "out\n",
      stderr: "err\n",
      error: undefined,
    });
    expect((await sandbox.commands.run("true")).stdout).toBe("");
  },

  "a command that fails throws, with all that it said": async ({ sandbox, sdk }) => {
    const error = await failure(sandbox.commands.run("echo out; echo err >&2; exit 3"));
    expect(error).toBeInstanceOf(sdk.CommandExitError);
    expect(error).toMatchObject({ exitCode: 3, stdout: "out\n", stderr: "err\n" });
    expect((error as { error?: string }).error).toMatch(/^exit status 3/);
  },

  "a command that a signal ended has no exit code": async ({ sandbox, sdk }) => {
    const error = await failure(sandbox.commands.run("kill -SEGV $$"));
    expect(error).toBeInstanceOf(sdk.CommandExitError);
    expect(error).toMatchObject({ exitCode: -1 });
    expect((error as { error?: string }).error).toMatch(/^signal: segmentation fault/);
  },

  "output arrives while the command runs": async ({ sandbox }) => {
    const seen: string[] = [];
    const command = await sandbox.commands.run("echo first; read line; echo got $line; echo bad >&2", {
      background: true,
      stdin: true,
      onStdout: (text) => void seen.push(`out ${text}`),
      onStderr: (text) => void seen.push(`err ${text}`),
    });
    await expect.poll(() => seen).toEqual(["out first\n"]);
    await command.sendStdin("more\n");
    await command.wait();
    expect(seen.slice().sort()).toEqual(["err bad\n", "out first\n", "out got more\n"]);
  },

  "stdin takes text and bytes, and its end": async ({ sandbox }) => {
    const command = await sandbox.commands.run("cat; echo .", { background: true, stdin: true });
    await command.sendStdin("größe\n");
    await sandbox.commands.sendStdin(command.pid, new Uint8Array([0xe2, 0x82]));
    await sandbox.commands.sendStdin(command.pid, new Uint8Array([0xac]));
    await command.closeStdin();
    expect((await command.wait()).stdout).toBe("größe\n€.\n");
  },

  "a megabyte goes through stdin whole": async ({ sandbox }) => {
    const command = await sandbox.commands.run("sha256sum", { background: true, stdin: true });
    const text = "0123456789abcdef".repeat(MIB / 16);
    await command.sendStdin(text);
    await command.closeStdin();
    expect((await command.wait()).stdout).toContain(sha256(text));
  },

  "without stdin a command reads the end at once": async ({ sandbox }) => {
    expect((await sandbox.commands.run("cat; echo end")).stdout).toBe("end\n");
  },

  "a background command is listed until it is killed": async ({ sandbox, sdk }) => {
    const command = await sandbox.commands.run("echo ready; sleep 1000", {
      background: true,
      cwd: "/tmp",
      envs: { MINE: "1" },
    });
    await says(command, "ready");
    const listed = (await sandbox.commands.list()).find(({ pid }) => pid === command.pid);
    expect(listed).toMatchObject({
      cmd: "/bin/bash",
      args: ["-l", "-c", "echo ready; sleep 1000"],
      cwd: "/tmp",
      envs: { MINE: "1" },
    });
    expect(await sandbox.commands.kill(command.pid)).toBe(true);
    const error = await failure(command.wait());
    expect(error).toBeInstanceOf(sdk.CommandExitError);
    expect(error).toMatchObject({ exitCode: -1, error: expect.stringMatching(/^signal: killed/) });
    expect((await sandbox.commands.list()).map(({ pid }) => pid)).not.toContain(command.pid);
    expect(await sandbox.commands.kill(command.pid)).toBe(false);
  },

  "the pid is the one that the command sees": async ({ sandbox }) => {
    const command = await sandbox.commands.run("echo $$", { background: true });
    expect((await command.wait()).stdout).toBe(`${command.pid}\n`);
  },

  "a client that connects again gets what was said meanwhile": async ({ sandbox, otherClient }) => {
    const command = await sandbox.commands.run("echo one; read line; echo two; read line; echo three; exit 5", {
      background: true,
      stdin: true,
      timeoutMs: 0,
    });
    await says(command, "one\n");
    await command.disconnect();
    await sandbox.commands.sendStdin(command.pid, "go\n");
    await sandbox.commands.run("sleep 0.2");
    const elsewhere = await otherClient.Sandbox.connect(sandbox.sandboxId);
    const again = await elsewhere.commands.connect(command.pid);
    expect(again.pid).toBe(command.pid);
    await says(again, "two\n");
    await again.sendStdin("go\n");
    expect(await failure(again.wait())).toMatchObject({ exitCode: 5, stdout: "two\nthree\n" });
  },

  "a client that connects after the end still learns of it": async ({ sandbox }) => {
    const command = await sandbox.commands.run("read line; echo late; exit 4", { background: true, stdin: true });
    await command.disconnect();
    await sandbox.commands.sendStdin(command.pid, "go\n");
    await expect
      .poll(async () => (await sandbox.commands.list()).map(({ pid }) => pid), { timeout: 5000 })
      .not.toContain(command.pid);
    const again = await sandbox.commands.connect(command.pid);
    expect(await failure(again.wait())).toMatchObject({ exitCode: 4, stdout: "late\n" });
  },

  "a pid that there is not is not found": async ({ sandbox, sdk }) => {
    expect(await failure(sandbox.commands.connect(999_999))).toBeInstanceOf(sdk.NotFoundError);
    expect(await failure(sandbox.commands.sendStdin(999_999, "x"))).toBeInstanceOf(sdk.NotFoundError);
    expect(await sandbox.commands.kill(999_999)).toBe(false);
  },

  "the environment is the sandbox's, then the command's": async ({ sandbox }) => {
    const script = "echo $FROM_SANDBOX $BOTH $OWN; echo $HOME $USER $LOGNAME; command -v ls";
    expect((await sandbox.commands.run(script, { envs: { BOTH: "command", OWN: "ö=ö" } })).stdout).toBe(
      "sandbox command ö=ö\n/home/user user user\n/usr/bin/ls\n",
    );
  },

  "a program finds out which sandbox it is in, by its environment and without": async ({ create }) => {
    const sandbox = await create({ envs: { E2B_SANDBOX: "mine" } });
    const files = "cat /run/e2b/.E2B_SANDBOX; echo; cat /run/e2b/.E2B_SANDBOX_ID";
    const { stdout } = await sandbox.commands.run(`echo $E2B_SANDBOX $E2B_SANDBOX_ID; ${files}`);
    expect(stdout).toBe(`mine ${sandbox.sandboxId}\ntrue\n${sandbox.sandboxId}`);
    const [fork] = await sandbox.fork();
    if (fork === undefined || fork instanceof Error) throw new Error("there is no fork", { cause: fork });
    try {
      const { stdout: forked } = await fork.commands.run("cat /run/e2b/.E2B_SANDBOX_ID; echo $E2B_SANDBOX_ID");
      expect(forked).toBe(`${fork.sandboxId}${fork.sandboxId}\n`);
    } finally {
      await fork.kill();
    }
  },

  "a command runs as the user it names": async ({ sandbox, sdk }) => {
    const script = "whoami; echo $HOME; pwd; id -gn";
    expect((await sandbox.commands.run(script)).stdout).toBe("user\n/home/user\n/home/user\nuser\n");
    expect((await sandbox.commands.run(script, { user: "user" })).stdout).toBe("user\n/home/user\n/home/user\nuser\n");
    expect((await sandbox.commands.run(script, { user: "root" })).stdout).toBe("root\n/root\n/root\nroot\n");
    const error = await failure(sandbox.commands.run("true", { user: "nobody-knows" }));
    expect(error).toBeInstanceOf(sdk.AuthenticationError);
    expect(error.message).toContain("invalid username: 'nobody-knows'");
  },

  "sudo works without a password": async ({ sandbox }) => {
    expect((await sandbox.commands.run("sudo whoami && sudo -u user whoami")).stdout).toBe("root\nuser\n");
  },

  "a command runs in the directory it names": async ({ sandbox, sdk }) => {
    expect((await sandbox.commands.run("pwd", { cwd: "/usr/lib" })).stdout).toBe("/usr/lib\n");
    const error = await failure(sandbox.commands.run("pwd", { cwd: "/not/there" }));
    expect(error).toBeInstanceOf(sdk.InvalidArgumentError);
    expect(error.message).toContain("cwd '/not/there' does not exist");
  },

  "a command past its time is ended with all it started": async ({ sandbox, sdk }) => {
    const start = Date.now();
    const error = await failure(
      sandbox.commands.run("setsid sleep 4242 & sleep 4242", { timeoutMs: 500, user: "root" }),
    );
    expect(error).toBeInstanceOf(sdk.TimeoutError);
    expect(error.message).toContain("timeoutMs");
    expect(Date.now() - start).toBeLessThan(5000);
    await expect
      .poll(async () => (await sandbox.commands.run("pgrep -fx 'sleep 4242' || true")).stdout, { timeout: 10_000 })
      .toBe("");
    expect((await sandbox.commands.list()).filter(({ args }) => args.join(" ").includes("4242"))).toEqual([]);
  },

  "50 MB of output arrive whole": {
    timeoutMs: 120_000,
    run: async ({ sandbox }) => {
      const script = `head -c ${37.5 * MIB} /dev/urandom | base64 -w 76 >/tmp/big; sha256sum </tmp/big >&2; cat /tmp/big; rm /tmp/big`;
      const { stdout, stderr } = await sandbox.commands.run(script, { timeoutMs: 0 });
      expect(stdout.length).toBeGreaterThan(50 * MIB);
      expect(stderr).toContain(sha256(stdout));
    },
  },

  "a character that is cut in pieces arrives as one": async ({ sandbox }) => {
    const script = String.raw`for b in '\xe2' '\x82' '\xac' '\xf0' '\x9f' '\x98' '\x80'; do printf "$b"; sleep 0.02; done; printf '\xff'`;
    expect((await sandbox.commands.run(script)).stdout).toBe("€😀\ufffd");
  },

  "twenty commands at once have an output each": async ({ sandbox }) => {
    // Two processes each, in a sandbox that has fewer of them on a small host.
    const count = fitting(20, { pids: 12 });
    const results = await Promise.all(
      Array.from({ length: count }, (_, i) => sandbox.commands.run(`sleep 0.1; seq ${i} ${i + 200}`)),
    );
    for (const [i, { stdout }] of results.entries()) {
      expect(stdout).toBe(Array.from({ length: 201 }, (_, n) => `${i + n}\n`).join(""));
    }
  },

  "a command that was killed for memory says so, with the numbers": async ({ create, sdk }) => {
    const sandbox = await create();
    const error = await failure(sandbox.commands.run("tail /dev/zero"));
    expect(error).toBeInstanceOf(sdk.CommandExitError);
    expect(error).toMatchObject({ exitCode: -1 });
    expect(error.message).toMatch(/^signal: killed/);
    expect(error.message).toMatch(/Killed for memory: .*limit .*tail/);
    expect((await sandbox.commands.run("echo alive")).stdout).toBe("alive\n");
  },
};

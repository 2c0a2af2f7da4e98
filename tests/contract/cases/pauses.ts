import { readFileSync } from "node:fs";
import type { Sandbox } from "e2b";
import { expect } from "vitest";
import { type Cases, failure, says } from "../cell.js";

const WEB_SERVER = readFileSync(new URL("../fixtures/web-server.py", import.meta.url), "utf8");

/** Counts on in its memory, and writes down where it is; resolves to its pid. */
async function startCounter(sandbox: Sandbox): Promise<number> {
  const script = "i=0; while true; do i=$((i+1)); echo $i >/tmp/count; sleep 0.02; done";
  const command = await sandbox.commands.run(script, { background: true, timeoutMs: 0 });
  // A stream that a pause cuts makes the SDK ask whether the sandbox is well, which is traffic too.
  await command.disconnect();
  await expect.poll(() => count(sandbox)).toBeGreaterThan(5);
  return command.pid;
}

async function count(sandbox: Sandbox): Promise<number> {
  return Number((await sandbox.commands.run("cat /tmp/count 2>/dev/null || echo 0")).stdout);
}

async function bootId(sandbox: Sandbox): Promise<string> {
  return (await sandbox.commands.run("cat /proc/sys/kernel/random/boot_id")).stdout;
}

async function isAlive(sandbox: Sandbox, pid: number): Promise<boolean> {
  return (await sandbox.commands.list()).some((command) => command.pid === pid);
}

export const pauseCases: Cases = {
  "a paused sandbox goes on where it was": async ({ create, client }) => {
    const sandbox = await create({ timeoutMs: 60_000, metadata: { kept: "yes" } });
    const boot = await bootId(sandbox);
    const pid = await startCounter(sandbox);
    await sandbox.files.write("kept.txt", "kept");
    const { startedAt } = await sandbox.getInfo();
    expect(await sandbox.pause()).toBe(true);
    expect(await sandbox.pause()).toBe(false);
    expect(await sandbox.isRunning()).toBe(false);
    const paused = await sandbox.getInfo();
    expect(paused).toMatchObject({ state: "paused", metadata: { kept: "yes" } });
    expect(paused.startedAt).toEqual(startedAt);
    expect(await failure(sandbox.commands.run("true"))).toBeInstanceOf(Error);

    const again = await client.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 });
    expect(await again.isRunning()).toBe(true);
    expect((await again.getInfo()).state).toBe("running");
    expect(await bootId(again)).toBe(boot);
    expect(await isAlive(again, pid)).toBe(true);
    const at = await count(again);
    await expect.poll(() => count(again)).toBeGreaterThan(at);
    expect(await again.files.read("kept.txt")).toBe("kept");
    // The client from before is as good as the new one.
    expect((await sandbox.commands.run("echo old client")).stdout).toBe("old client\n");
  },

  "nothing runs in a paused sandbox": async ({ create }) => {
    const sandbox = await create();
    await startCounter(sandbox);
    await sandbox.pause();
    await new Promise((resolve) => setTimeout(resolve, 700));
    await sandbox.connect();
    // Each count takes 20 ms: had it gone on, it would be ahead by more than the time since it was woken.
    const woken = Date.now();
    const at = await count(sandbox);
    const then = await count(sandbox);
    expect(then - at).toBeLessThan((Date.now() - woken) / 20 + 5);
  },

  "a command that runs is cut off by a pause and found again after it": async ({ create, sdk }) => {
    const sandbox = await create();
    const command = await sandbox.commands.run("echo before; read line; echo after; exit 6", {
      background: true,
      stdin: true,
      timeoutMs: 0,
    });
    await says(command, "before");
    const cut = failure(command.wait());
    await sandbox.pause();
    expect(await cut).toBeInstanceOf(sdk.TimeoutError);
    await sandbox.connect();
    const again = await sandbox.commands.connect(command.pid, { timeoutMs: 0 });
    await again.sendStdin("go\n");
    expect(await failure(again.wait())).toMatchObject({ exitCode: 6, stdout: "after\n" });
  },

  "what was said right before a pause is told once": async ({ create }) => {
    const sandbox = await create();
    for (let round = 0; round < 10; round++) {
      let pausing: Promise<boolean> | undefined;
      const command = await sandbox.commands.run("echo before; read line; echo after", {
        background: true,
        stdin: true,
        timeoutMs: 0,
        // At once: the server has hardly let go of it.
        onStdout: () => {
          pausing ??= sandbox.pause();
        },
      });
      await failure(command.wait());
      await pausing;
      await sandbox.connect();
      const again = await sandbox.commands.connect(command.pid, { timeoutMs: 0 });
      await again.sendStdin("go\n");
      expect(await again.wait(), `round ${round}`).toMatchObject({ stdout: "after\n" });
    }
  },

  "a pause without memory keeps the files and boots anew": async ({ create }) => {
    const sandbox = await create({ envs: { STILL: "set" } });
    const boot = await bootId(sandbox);
    const pid = await startCounter(sandbox);
    await sandbox.files.write("kept.txt", "kept", { metadata: { tag: "1" } });
    await sandbox.commands.run("ln -s kept.txt link && chmod 600 kept.txt");
    expect(await sandbox.pause({ keepMemory: false })).toBe(true);
    expect((await sandbox.getInfo()).state).toBe("paused");
    await sandbox.connect();
    expect(await isAlive(sandbox, pid)).toBe(false);
    expect(await bootId(sandbox)).not.toBe(boot);
    expect(await sandbox.files.read("link")).toBe("kept");
    expect(await sandbox.files.getInfo("kept.txt")).toMatchObject({
      mode: 0o600,
      metadata: { tag: "1" },
      owner: "user",
    });
    expect((await sandbox.commands.run("echo $STILL")).stdout).toBe("set\n");
  },

  "a sandbox that was paused with its memory can be booted anew": {
    in: ({ version }) => version === "2.51",
    run: async ({ create }) => {
      const sandbox = await create();
      const boot = await bootId(sandbox);
      const pid = await startCounter(sandbox);
      await sandbox.files.write("kept.txt", "kept");
      await sandbox.pause();
      await sandbox.connect({ onResume: "reboot" });
      expect(await isAlive(sandbox, pid)).toBe(false);
      expect(await bootId(sandbox)).not.toBe(boot);
      expect(await sandbox.files.read("kept.txt")).toBe("kept");
    },
  },

  "files are never lost by pausing, however often": async ({ create }) => {
    const sandbox = await create();
    await startCounter(sandbox);
    for (let i = 0; i < 6; i++) {
      await sandbox.files.write(`file-${i}`, `content ${i}`);
      expect(await sandbox.pause({ keepMemory: i % 3 !== 2 })).toBe(true);
      await sandbox.connect();
    }
    for (let i = 0; i < 6; i++) expect(await sandbox.files.read(`file-${i}`)).toBe(`content ${i}`);
  },

  "a sandbox pauses itself when its time is up, if it shall": async ({ create }) => {
    const withMemory = await create({ timeoutMs: 1000, lifecycle: { onTimeout: "pause" } });
    const filesOnly = await create({
      timeoutMs: 1000,
      lifecycle: { onTimeout: { action: "pause", keepMemory: false } },
    });
    expect((await withMemory.getInfo()).lifecycle).toEqual({ onTimeout: "pause", autoResume: false });
    const boots = [await bootId(withMemory), await bootId(filesOnly)];
    for (const sandbox of [withMemory, filesOnly]) {
      await expect.poll(async () => (await sandbox.getInfo()).state, { timeout: 10_000 }).toBe("paused");
      expect(await sandbox.isRunning()).toBe(false);
      await sandbox.connect({ timeoutMs: 60_000 });
    }
    expect(await bootId(withMemory)).toBe(boots[0]);
    expect(await bootId(filesOnly)).not.toBe(boots[1]);
  },

  "a time to live of nothing pauses at once, and nothing of the memory is lost": async ({ create }) => {
    const sandbox = await create({ timeoutMs: 60_000, lifecycle: { onTimeout: "pause" } });
    const boot = await bootId(sandbox);
    await sandbox.setTimeout(0);
    await expect.poll(() => sandbox.isRunning(), { timeout: 10_000 }).toBe(false);
    await sandbox.connect();
    expect(await bootId(sandbox)).toBe(boot);
  },

  "traffic wakes a sandbox that may be woken": async ({ create, reach }) => {
    const sandbox = await create({ timeoutMs: 60_000, lifecycle: { onTimeout: "pause", autoResume: true } });
    expect((await sandbox.getInfo()).lifecycle).toEqual({ onTimeout: "pause", autoResume: true });
    const pid = await startCounter(sandbox);
    await sandbox.files.write("/tmp/web-server.py", WEB_SERVER);
    const web = await sandbox.commands.run("exec python3 /tmp/web-server.py 127.0.0.1 8011", {
      background: true,
      timeoutMs: 0,
    });
    await says(web, "ready");
    await web.disconnect();

    await sandbox.pause();
    expect((await sandbox.getInfo()).state).toBe("paused");
    expect((await sandbox.commands.run("echo awake")).stdout).toBe("awake\n");
    expect(await isAlive(sandbox, pid)).toBe(true);

    await sandbox.pause();
    const answers = await Promise.all(Array.from({ length: 5 }, () => reach(sandbox, 8011, "/")));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    expect((await sandbox.getInfo()).state).toBe("running");

    await sandbox.pause();
    await sandbox.files.write("woken.txt", "by a file");
    expect(await sandbox.files.read("woken.txt")).toBe("by a file");
  },

  "a paused sandbox can be killed": async ({ create, sdk }) => {
    for (const keepMemory of [true, false]) {
      const sandbox = await create();
      await sandbox.pause({ keepMemory });
      expect(await sandbox.kill()).toBe(true);
      expect(await sandbox.kill()).toBe(false);
      expect(await failure(sandbox.getInfo())).toBeInstanceOf(sdk.SandboxNotFoundError);
    }
  },

  "a paused sandbox is not reached by its name": async ({ create, reach }) => {
    const sandbox = await create();
    await sandbox.pause();
    const response = await reach(sandbox, 8000, "/");
    expect(response.status).toBe(502);
    expect(await response.json()).toMatchObject({ sandboxId: sandbox.sandboxId, code: 502 });
  },
};

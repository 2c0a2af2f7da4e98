/** Processes of sandboxes: the living, the dead that nobody waits for, those that outlived their command, and nobody's. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { createSandboxId } from "@holdfast/protocol";
import { beforeAll, describe, expect, test } from "vitest";
import { detectCgroups } from "../../packages/engine/src/cgroups/index.js";
import { buildEngine, runScript } from "../helpers/built-engine.js";
import { isRunning } from "../helpers/processes.js";
import { patienceMs } from "../helpers/scale.js";
import { MIB, SMALL_LIMITS, shell, useEngine } from "../helpers/use-engine.js";

const use = useEngine({ forgivesZombies: true });
beforeAll(buildEngine, patienceMs(60_000));

/** Forks so many that end at once, waits for none of them, says so, and goes on. */
const forgetful = (count: number, more = "") =>
  `import os, signal, sys, time
${more}
for _ in range(${count}):
    if os.fork() == 0: os._exit(0)
time.sleep(0.2)
print("forked", flush=True)
time.sleep(1000)`;

async function startForgetful(sandbox: Awaited<ReturnType<typeof use.create>>, count: number, more = "") {
  const command = await sandbox.start({ argv: ["python3", "-c", forgetful(count, more)] });
  for await (const event of command.output()) if (event.kind === "data") break;
  return command;
}

describe("the processes of a sandbox", () => {
  test("are counted apart: alive, dead and not waited for, left by a command that has ended", async () => {
    const sandbox = await use.create();
    expect(sandbox.gauge.countProcesses()).toEqual({ live: 0, zombies: 0, orphans: 0 });
    const running = await startForgetful(sandbox, 7);
    expect(sandbox.gauge.countProcesses()).toEqual({ live: 1, zombies: 7, orphans: 0 });
    await shell(sandbox, "for i in 1 2 3; do sleep 1000 >/dev/null 2>&1 & done");
    expect(sandbox.gauge.countProcesses()).toEqual({ live: 1, zombies: 7, orphans: 3 });
    expect(sandbox.gauge.read().processes.used).toBe(11);
    await running.cancel("the test", { graceMs: 0 });
    await expect
      .poll(() => sandbox.gauge.countProcesses(), { timeout: patienceMs(2000) })
      .toEqual({
        live: 0,
        zombies: 0,
        orphans: 3,
      });
  });

  test("that outlived their command are ended by a clean-up, and those of running commands are not", async () => {
    const sandbox = await use.create();
    const running = await sandbox.start({ argv: ["sh", "-c", "sleep 1000 & sleep 1001 & wait"] });
    await expect.poll(() => sandbox.gauge.countProcesses().live, { timeout: patienceMs(2000) }).toBe(3);
    await shell(sandbox, "for i in 1 2 3 4; do sleep 1000 >/dev/null 2>&1 & done");
    expect(await sandbox.gauge.cleanUp()).toEqual({ zombiesReaped: 0, orphansEnded: 4, failed: 0 });
    expect(sandbox.gauge.countProcesses()).toEqual({ live: 3, zombies: 0, orphans: 0 });
    expect((await running.cancel("the test")).cause.kind).toBe("canceled");
  });

  test("that are dead are waited for by those who listen, and go with orphans that do not", async () => {
    const sandbox = await use.create();
    // Its handler was not there when they died.
    const handler = `def bury(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
signal.signal(signal.SIGUSR1, lambda *_: signal.signal(signal.SIGCHLD, bury))`;
    const listens = await startForgetful(sandbox, 5, handler);
    await listens.signal("SIGUSR1");
    await shell(
      sandbox,
      `python3 -c '${forgetful(4)}' >/dev/null 2>&1 & while [ "$(ps -e -o stat= | grep -c Z)" -lt 9 ]; do sleep 0.05; done`,
    );
    expect(sandbox.gauge.countProcesses()).toEqual({ live: 1, zombies: 9, orphans: 1 });
    expect(await sandbox.gauge.cleanUp()).toEqual({ zombiesReaped: 9, orphansEnded: 1, failed: 0 });
    expect(sandbox.gauge.countProcesses()).toEqual({ live: 1, zombies: 0, orphans: 0 });
    await listens.cancel("the test", { graceMs: 0 });
  });

  test("are counted against what its commands may have", async () => {
    const sandbox = await use.create();
    await shell(
      sandbox,
      "i=0; while sleep 1000 >/dev/null 2>&1 & do i=$((i+1)); [ $i -gt 100 ] && break; done 2>/dev/null",
    );
    const { used, limit } = sandbox.gauge.read().processes;
    expect(limit).toBeLessThanOrEqual(SMALL_LIMITS.pids);
    expect(used).toBeGreaterThan(limit * 0.9);
    expect(used).toBeLessThanOrEqual(limit);
  });
});

describe("a sandbox seen from outside", () => {
  test("is busy while a command runs or something is open, and idle otherwise", async () => {
    const sandbox = await use.create({ network: { kind: "egress", deny: [], allow: [] } });
    expect(sandbox.gauge.isBusy).toBe(false);
    const command = await sandbox.start({ argv: ["sleep", "1000"] });
    command.detach();
    expect(sandbox.gauge.isBusy).toBe(true);
    await command.cancel("the test", { graceMs: 0 });
    await expect.poll(() => sandbox.gauge.isBusy, { timeout: patienceMs(2000) }).toBe(false);
  });

  test("shows how much memory its programs hold, without what is only cached", async () => {
    const sandbox = await use.create();
    const hold = `b = bytearray(${32 * MIB})
for i in range(0, len(b), 4096): b[i] = 1
print("held", flush=True)
import time; time.sleep(1000)`;
    await shell(sandbox, "head -c 20000000 /dev/zero >/home/user/file; cat /home/user/file >/dev/null");
    expect(sandbox.gauge.read({ usage: true }).memory.usedBytes).toBeLessThan(16 * MIB);
    const command = await sandbox.start({ argv: ["python3", "-c", hold] });
    for await (const event of command.output()) if (event.kind === "data") break;
    const { usedBytes, limitBytes } = sandbox.gauge.read({ usage: true }).memory;
    expect(limitBytes).toBe(SMALL_LIMITS.memoryBytes);
    expect(usedBytes).toBeGreaterThan(32 * MIB);
    expect(usedBytes).toBeLessThanOrEqual(limitBytes);
  });

  test("is told what it can read and cannot change", async () => {
    const sandbox = await use.create();
    const read = async () => (await shell(sandbox, "cat /dev/holdfast/pressure", { user: "user" })).stdout;
    expect(await read()).toBe("calm\n");
    sandbox.gauge.tell("warn memory: 90 %\n");
    expect(await read()).toBe("warn memory: 90 %\n");
    const spoilt = await shell(
      sandbox,
      "echo x >/dev/holdfast/pressure; rm -f /dev/holdfast/pressure; echo x >/dev/holdfast/more; rm -rf /dev/holdfast; mv /dev/holdfast /dev/x; true",
    );
    expect(spoilt.exitCode).toBe(0);
    expect(await read()).toBe("warn memory: 90 %\n");
    sandbox.gauge.tell("calm\n");
    expect(await read()).toBe("calm\n");
  });

  test("says calm again after it was stopped and booted", async () => {
    const sandbox = await use.create();
    sandbox.gauge.tell("warn memory: 90 %\n");
    await sandbox.stop("the test");
    const booted = await use.engine.boot(sandbox.id);
    expect((await shell(booted, "cat /dev/holdfast/pressure")).stdout).toBe("calm\n");
    booted.gauge.tell("warn\n");
    expect((await shell(booted, "cat /dev/holdfast/pressure")).stdout).toBe("warn\n");
    await booted.kill("the test");
  });

  test("keeps its part of the budget if it is frozen so, and thaws whatever else waits", async () => {
    const sandbox = await use.create();
    const { reserved } = await use.engine.budget();
    await sandbox.freeze({ keepsPromise: true });
    expect((await use.engine.budget()).reserved).toEqual(reserved);
    await sandbox.thaw();
    expect((await use.engine.budget()).reserved).toEqual(reserved);
    await sandbox.freeze();
    expect((await use.engine.budget()).reserved.memoryBytes).toBeLessThan(reserved.memoryBytes);
    await sandbox.thaw();
  });
});

describe("what belongs to nobody", () => {
  test("is found and named after its engine was killed; what others answer for is left alone", async () => {
    const plan = { sandboxes: [{ spec: { limits: SMALL_LIMITS }, commands: [{ argv: ["sleep", "1000"] }] }] };
    const owners = [0, 1].map(() => runScript("owner.mjs", [use.stateDirectory, JSON.stringify(plan)]));
    const made = await Promise.all(owners.map((owner) => owner.next<{ made: { id: string }[] }>()));
    const idOf = (index: number) => made[index]?.made[0]?.id;
    const kill = async (index: number) => {
      owners[index]?.child.kill("SIGKILL");
      await owners[index]?.exited;
    };
    const ours = await use.create();
    await kill(0);
    const ended = await use.engine.endUnowned();
    expect(ended).toEqual([{ id: idOf(0), processes: expect.any(Number), why: expect.any(String) }]);
    expect(ended[0]?.processes).toBeGreaterThanOrEqual(2);
    expect(await use.engine.endUnowned()).toEqual([]);
    expect(ours.state).toBe("running");
    await kill(1);
    expect((await use.engine.endUnowned()).map(({ id }) => id)).toEqual([idOf(1)]);
  });

  test("is ended if it is in a cgroup of ours without anything else known of it; foreign ones are not touched", async () => {
    const cgroups = detectCgroups();
    const id = createSandboxId();
    const limits = { memoryBytes: 16 * MIB, pids: 16, cpuMillis: undefined };
    const cgroup = cgroups.create(id, { limits, uid: 0, gid: 0 });
    const foreign = `${cgroups.baseName.replace(/\/holdfast$/, "")}/not-ours`;
    mkdirSync(foreign, { recursive: true });
    const sleepIn = (files: readonly string[]): ChildProcess => {
      const child = spawn("sleep", ["1000"], { stdio: "ignore" });
      for (const file of files) writeFileSync(file, String(child.pid));
      return child;
    };
    const stray = sleepIn(cgroup.guestProcsFiles);
    const theirs = sleepIn([`${foreign}/cgroup.procs`]);
    try {
      // Not at the first sight of it.
      expect(await use.engine.endUnowned()).toEqual([]);
      expect(isRunning(stray.pid ?? 0)).toBe(true);
      const ended: unknown[] = [];
      await expect
        .poll(async () => ended.push(...(await use.engine.endUnowned())), {
          timeout: patienceMs(10_000),
          interval: 500,
        })
        .toBe(1);
      expect(ended).toEqual([{ id, processes: 1, why: expect.stringContaining("nobody") }]);
      expect(isRunning(stray.pid ?? 0)).toBe(false);
      expect(isRunning(theirs.pid ?? 0)).toBe(true);
      expect(cgroups.list()).toEqual([]);
    } finally {
      theirs.kill("SIGKILL");
      stray.kill("SIGKILL");
      await expect.poll(() => isRunning(theirs.pid ?? 0), { timeout: patienceMs(2000) }).toBe(false);
      rmdirSync(foreign);
    }
  });
});

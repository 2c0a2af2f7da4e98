/** What the host sees of a sandbox: its processes, what it held at its end, and memory that it can give back. */
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, vi } from "vitest";
import { lacksHost } from "../../helpers/needs-host.js";
import { ready } from "../../helpers/output-reader.js";
import { patienceMs } from "../../helpers/scale.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { MIB, SMALL_LIMITS, shell } from "../../helpers/use-engine.js";

const ROOMY = { ...SMALL_LIMITS, memoryBytes: 256 * MIB, diskBytes: 256 * MIB };

export function describeObserving(open: OpenEngine): void {
  describe("seen from the host", () => {
    const use = useSharedEngine(open);

    it("a sandbox's processes are listed with their commands", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({
        argv: ["bash", "-c", 'sleep 1111 & exec -a "$(printf "odd\\001name")" sleep 2222 & echo ready; wait'],
      });
      await ready(command);
      // Its children may be about to become what they are called.
      await vi.waitFor(() => expect(sandbox.processes().filter(({ name }) => name === "sleep")).toHaveLength(2));
      const rows = sandbox.processes();
      const first = rows.find(({ pid }) => pid === command.pid);
      expect(first).toMatchObject({ name: "bash", commandId: command.id, state: expect.stringMatching(/^[SRD]$/) });
      expect(first?.rssBytes).toBeGreaterThan(100_000);
      const lines = rows.filter(({ commandId }) => commandId === command.id).map(({ commandLine }) => commandLine);
      expect(lines).toContain("sleep 1111");
      expect(lines).toContain("odd\uFFFDname 2222");
      // The guest, and what started it on the host.
      expect(rows.filter(({ commandId }) => commandId === null).map(({ pid }) => pid)).toEqual([null, 1]);
      for (const { hostPid } of rows) expect(hostPid).toBeGreaterThan(1);
    });

    const tooMany = lacksHost({ pids: 808, why: "more processes than are listed" });
    it.skipIf(tooMany)(
      "the list of a sandbox with very many processes is bounded, and so is each line",
      {
        timeout: patienceMs(60_000),
      },
      async () => {
        const sandbox = await use.create({ limits: { ...ROOMY, pids: 800 } });
        const command = await sandbox.start({
          argv: [
            "bash",
            "-c",
            `long=$(printf '1%.0s' $(seq 1500)); for i in $(seq 600); do sleep 1000 $long & done; echo ready; wait`,
          ],
        });
        await ready(command);
        const rows = sandbox.processes();
        expect(rows).toHaveLength(512);
        for (const { commandLine } of rows) expect(commandLine.length).toBeLessThanOrEqual(512);
        const begin = performance.now();
        await sandbox.kill("the test");
        expect(performance.now() - begin).toBeLessThan(patienceMs(2000));
        expect(sandbox.finalLook?.processes.length).toBeGreaterThan(0);
        expect(sandbox.processes()).toEqual([]);
      },
    );

    it("its last moment is kept", async () => {
      const sandbox = await use.create();
      expect(sandbox.finalLook).toBeUndefined();
      const command = await sandbox.start({ argv: ["bash", "-c", "echo ready; sleep 1000; echo end"] });
      await ready(command);
      await shell(sandbox, "tail /dev/zero; head -c 5M /dev/zero >/dev/shm/held");
      await sandbox.kill("the test");
      const look = sandbox.finalLook;
      expect(look?.processes.map(({ pid }) => pid)).toContain(command.pid);
      expect(look?.processes.find(({ pid }) => pid === command.pid)?.commandId).toBe(command.id);
      expect(look?.counters).toMatchObject({ oomKills: 1, pidsRefused: 0, memoryLimitBytes: SMALL_LIMITS.memoryBytes });
      expect(look?.counters.memoryBytes).toBeGreaterThan(5 * MIB);
      expect(look?.counters.memoryPeakBytes).toBeGreaterThan(SMALL_LIMITS.memoryBytes / 2);
      expect(look?.counters.pids).toBeGreaterThan(2);
      expect(look?.counters.cpuMs).toBeGreaterThan(0);
    });

    it.each(["running", "frozen"] as const)("a %s sandbox gives back its page cache", async (state) => {
      const sandbox = await use.create({ limits: ROOMY });
      await shell(sandbox, "head -c 50M /dev/urandom >file; sync file; cat file >/dev/null");
      // cgroup v1 adds up what each CPU has counted only every now and then.
      await expect.poll(async () => (await sandbox.stats()).memoryCacheBytes).toBeGreaterThan(45 * MIB);
      const held = await sandbox.stats();
      expect(held.memoryCacheBytes).toBeLessThanOrEqual(held.memoryBytes);
      const command = await sandbox.start({ argv: ["bash", "-c", "echo ready; read line; echo $line"], stdin: "open" });
      const reader = await ready(command);
      if (state === "frozen") await sandbox.freeze();
      const begin = performance.now();
      const released = await sandbox.reclaim();
      expect(performance.now() - begin).toBeLessThan(patienceMs(2000));
      expect(released).toBeGreaterThan(45 * MIB);
      await expect.poll(async () => (await sandbox.stats()).memoryCacheBytes).toBeLessThan(5 * MIB);
      expect(sandbox.state).toBe(state);
      if (state === "frozen") await sandbox.thaw();
      command.stdin?.end("unharmed\n");
      expect(await reader.rest()).toContain("unharmed");
      expect((await command.ended).incidents).toEqual([]);
    });

    it("memory that is in use stays, and nothing is killed for it", async () => {
      const sandbox = await use.create({ limits: ROOMY });
      await shell(sandbox, "head -c 40M /dev/urandom >/dev/shm/held; sha256sum /dev/shm/held >sum");
      expect((await sandbox.stats()).memoryCacheBytes).toBeLessThan(20 * MIB);
      await sandbox.reclaim();
      expect((await sandbox.stats()).memoryBytes).toBeGreaterThan(39 * MIB);
      expect((await shell(sandbox, "sha256sum -c sum")).exitCode).toBe(0);
      await sandbox.kill("the test");
      await expect(sandbox.reclaim()).rejects.toMatchObject({ code: "sandbox_ended" });
    });

    it("what the machine has is known, and no more than that is promised", async () => {
      const capacity = await use.engine.capacity();
      for (const value of Object.values(capacity)) expect(value).toBeGreaterThan(0);
      expect(capacity.memoryAvailableBytes).toBeLessThanOrEqual(capacity.memoryBytes);
      expect(capacity.diskUsedBytes).toBeLessThan(capacity.diskBytes);
      const sandbox = await use.create({ limits: ROOMY });
      await shell(sandbox, "head -c 40M /dev/urandom >file; head -c 60M /dev/urandom >/dev/shm/held; sync");
      const before = capacity.diskUsedBytes;
      const deadline = Date.now() + patienceMs(10_000);
      while ((await use.engine.capacity()).diskUsedBytes < before + 30 * MIB && Date.now() < deadline) await sleep(100);
      expect((await use.engine.capacity()).diskUsedBytes).toBeGreaterThan(before + 30 * MIB);
    });
  });
}

/** A sandbox can be resized, frozen and looked at while it runs, and ends once. */
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { ready } from "../../helpers/output-reader.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { collect, MIB, run, SMALL_LIMITS, shell } from "../../helpers/use-engine.js";

export function describeLiveChanges(open: OpenEngine): void {
  describe("a living sandbox", () => {
    const use = useSharedEngine(open);

    it("takes more memory while it runs", async () => {
      const sandbox = await use.create();
      const needs100 = ["bash", "-c", "head -c 100M /dev/zero | tail | wc -c"];
      expect([(await run(sandbox, needs100)).incidents, (await run(sandbox, needs100)).cause].flat()).toContainEqual(
        expect.objectContaining({ kind: "out_of_memory" }),
      );
      await sandbox.resize({ memoryBytes: 256 * MIB });
      expect(sandbox.limits.memoryBytes).toBe(256 * MIB);
      expect((await sandbox.stats()).memoryLimitBytes).toBe(256 * MIB);
      const result = await run(sandbox, needs100);
      expect(result.incidents).toEqual([]);
      expect(result.stdout).toBe(`${100 * MIB}\n`);
      await sandbox.resize({ memoryBytes: 64 * MIB });
      expect((await run(sandbox, ["tail", "/dev/zero"])).cause).toMatchObject({
        kind: "out_of_memory",
        limitBytes: 64 * MIB,
      });
    });

    it("refuses less memory than is in use, and changes nothing", async () => {
      const sandbox = await use.create();
      await shell(sandbox, "head -c 30M /dev/urandom >/dev/shm/held");
      await expect(sandbox.resize({ memoryBytes: 16 * MIB, pids: 32 })).rejects.toMatchObject({
        code: "invalid_argument",
      });
      expect(sandbox.limits).toEqual(SMALL_LIMITS);
      expect((await run(sandbox, ["sh", "-c", "ulimit -p"])).stdout).toBe("64\n");
    });

    it("takes more and fewer processes while it runs", async () => {
      const sandbox = await use.create();
      const starts = async (count: number) => {
        const result = await shell(sandbox, `for i in $(seq ${count}); do sleep 1000 & done; echo all`);
        await shell(sandbox, "kill -9 -1");
        return result.stdout === "all\n";
      };
      expect(await starts(80)).toBe(false);
      await sandbox.resize({ pids: 128 });
      expect(await starts(80)).toBe(true);
      await sandbox.resize({ pids: 32 });
      expect(await starts(40)).toBe(false);
    });

    it("takes another share of the CPU while a command runs", async () => {
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, cpuMillis: 1000 } });
      const busy = await sandbox.start({ argv: ["bash", "-c", "echo ready; while :; do :; done"] });
      await ready(busy);
      await sandbox.resize({ cpuMillis: 50 });
      await sleep(200);
      const before = (await sandbox.stats()).cpuMs;
      await sleep(1000);
      expect((await sandbox.stats()).cpuMs - before).toBeLessThan(300);
    });

    it.each([{ memoryBytes: 1 }, { pids: 0 }, { cpuMillis: -5 }, { pids: 1.5 }])(
      "refuses to become %j",
      async (change) => {
        const sandbox = await use.create();
        await expect(sandbox.resize(change)).rejects.toMatchObject({ code: "invalid_argument" });
        expect(sandbox.limits).toEqual(SMALL_LIMITS);
      },
    );

    it("stands still while frozen and goes on when thawed", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: ["bash", "-c", "echo ready; while :; do :; done"] });
      await ready(command);
      await sandbox.freeze();
      expect(sandbox.state).toBe("frozen");
      const before = (await sandbox.stats()).cpuMs;
      await sleep(300);
      expect((await sandbox.stats()).cpuMs).toBe(before);
      await expect(sandbox.start({ argv: ["true"] })).rejects.toMatchObject({ code: "sandbox_frozen" });
      await expect(sandbox.files.stat("/")).rejects.toMatchObject({ code: "sandbox_frozen" });
      await sandbox.thaw();
      expect(sandbox.state).toBe("running");
      expect((await run(sandbox, ["echo", "awake"])).stdout).toBe("awake\n");
      while ((await sandbox.stats()).cpuMs <= before) await sleep(10);
    });

    it("is killed although it is frozen", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: ["sleep", "1000"] });
      await sandbox.freeze();
      expect((await sandbox.kill("the test")).cause).toEqual({ kind: "killed", by: "the test" });
      expect((await command.ended).cause).toEqual({ kind: "canceled", by: "the test" });
    });

    it("cancels a command although it is frozen", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: ["sleep", "1000"] });
      await sandbox.freeze();
      const canceled = command.cancel("the test", { graceMs: 100 });
      await sleep(300);
      await sandbox.thaw();
      expect((await canceled).cause).toEqual({ kind: "canceled", by: "the test" });
    });

    it("says what it uses", async () => {
      const sandbox = await use.create();
      const idle = await sandbox.stats();
      expect(idle).toMatchObject({
        memoryLimitBytes: SMALL_LIMITS.memoryBytes,
        pidsLimit: SMALL_LIMITS.pids,
        diskLimitBytes: SMALL_LIMITS.diskBytes,
      });
      const command = await sandbox.start({
        argv: ["bash", "-c", "head -c 20M /dev/urandom >file; sync file; sleep 1000 & echo ready; wait"],
      });
      await ready(command);
      const busy = await sandbox.stats();
      expect(busy.pids).toBe(idle.pids + 2);
      expect(busy.cpuMs).toBeGreaterThan(idle.cpuMs);
      expect(busy.memoryBytes).toBeGreaterThan(idle.memoryBytes);
      expect((busy.diskBytes ?? 0) - (idle.diskBytes ?? 0)).toBeGreaterThan(19 * MIB);
      expect((busy.diskBytes ?? 0) - (idle.diskBytes ?? 0)).toBeLessThan(30 * MIB);
    });

    it("ends once, whoever asks", async () => {
      const sandbox = await use.create();
      const endings = await Promise.all([sandbox.kill("first"), sandbox.kill("second"), sandbox.ended]);
      expect(new Set(endings.map(({ cause }) => JSON.stringify(cause)))).toEqual(
        new Set([JSON.stringify({ kind: "killed", by: "first" })]),
      );
      expect(sandbox.state).toBe("ended");
      expect(endings[0].usage.wallMs).toBeGreaterThan(0);
      for (const act of [
        () => sandbox.start({ argv: ["true"] }),
        () => sandbox.files.stat("/"),
        () => sandbox.commands(),
        () => sandbox.freeze(),
        () => sandbox.resize({ pids: 10 }),
        () => sandbox.dial({ port: 1 }),
      ]) {
        await expect((async () => act())()).rejects.toMatchObject({ code: "sandbox_ended" });
      }
    });

    it("is known by its id until it ends", async () => {
      const sandbox = await use.create();
      expect(use.engine.get(sandbox.id)).toBe(sandbox);
      expect(use.engine.list()).toEqual([sandbox]);
      await expect(use.create({ id: sandbox.id })).rejects.toMatchObject({ code: "sandbox_exists" });
      expect((await run(sandbox, ["echo", "unharmed"])).stdout).toBe("unharmed\n");
      await sandbox.kill("the test");
      expect(use.engine.get(sandbox.id)).toBeUndefined();
      expect(use.engine.list()).toEqual([]);
      const again = await use.create({ id: sandbox.id });
      expect((await collect(await again.start({ argv: ["ls", "/home/user"] }))).stdout).toBe("");
    });
  });
}

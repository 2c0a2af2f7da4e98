/** What will not go, goes: by timeout, by cancel, with its sandbox, with its engine. Afterwards nothing of it lives. */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { Sandbox } from "@holdfast/engine";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { fixture } from "../../helpers/fixtures.js";
import { assertNoLeaks, OUR_DIRECTORIES, takeInventory } from "../../helpers/leaks.js";
import { ready } from "../../helpers/output-reader.js";
import { patienceMs } from "../../helpers/scale.js";
import { type OpenEngine, useSharedEngine } from "../../helpers/shared-engine.js";
import { collect, SMALL_LIMITS, shell } from "../../helpers/use-engine.js";

const LOG = "/home/user/stubborn.log";
/** What the promise allows between the result and the last sign of life. */
const SETTLE_MS = 500;
const SIZE_TWICE = `a=$(stat -c %s ${LOG}); sleep 0.3; b=$(stat -c %s ${LOG}); echo $((b - a))`;

/** From inside, by another command: nobody is left but the guest and the one who asks, and the file stands still. */
async function expectGone(sandbox: Sandbox): Promise<void> {
  await sleep(SETTLE_MS);
  const processes = await shell(sandbox, "cd /proc && for p in [0-9]*; do echo $p $(cat $p/comm 2>/dev/null); done", {
    user: "root",
  });
  const others = processes.stdout
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("1 ") && !/ (sh|cat)?$/.test(line));
  expect(others).toEqual([]);
  expect((await shell(sandbox, SIZE_TWICE)).stdout).toBe("0\n");
}

export function describeStopping(open: OpenEngine): void {
  describe("a payload that will not go", () => {
    const use = useSharedEngine(open);

    it("is gone after its timeout, and the result has what it said so far", async () => {
      const sandbox = await use.create();
      const [wallMs, graceMs] = [patienceMs(400), 300];
      const begin = performance.now();
      const command = await sandbox.start({ argv: fixture("stubborn.sh", LOG), limits: { wallMs }, graceMs });
      const result = await collect(command);
      const tookMs = performance.now() - begin;
      expect(result.cause).toEqual({ kind: "timed_out", limitMs: wallMs });
      expect(result.stdout).toBe("ready\n");
      // Promised is timeout + grace + 1 s.
      expect(tookMs).toBeGreaterThanOrEqual(wallMs);
      expect(tookMs).toBeLessThan(wallMs + graceMs + patienceMs(1000));
      await expectGone(sandbox);
    });

    it("is gone after a timeout although its first process ends at once on SIGTERM", async () => {
      const sandbox = await use.create();
      const script = `(trap '' TERM; while :; do echo x >>${LOG}; sleep 0.05; done) & echo ready; sleep 1000`;
      const result = await shell(sandbox, script, { limits: { wallMs: patienceMs(200) }, graceMs: 300 });
      expect(result.cause).toMatchObject({ kind: "timed_out" });
      expect(result.stdout).toBe("ready\n");
      await expectGone(sandbox);
    });

    it("is gone after a cancel", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: fixture("stubborn.sh", LOG) });
      const reader = await ready(command);
      const begin = performance.now();
      const ending = await command.cancel("the test", { graceMs: 300 });
      expect(ending.cause).toEqual({ kind: "canceled", by: "the test" });
      expect(performance.now() - begin).toBeLessThan(300 + patienceMs(1000));
      expect(await reader.rest()).toBe("ready\n");
      await expectGone(sandbox);
    });

    it("is gone after a cancel that leaves no grace", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: fixture("stubborn.sh", LOG) });
      await ready(command);
      expect((await command.cancel("the test", { graceMs: 0 })).cause).toEqual({ kind: "canceled", by: "the test" });
      await expectGone(sandbox);
    });

    it("is gone when the caller's signal aborts", async () => {
      const sandbox = await use.create();
      const controller = new AbortController();
      const command = await sandbox.start(
        { argv: fixture("stubborn.sh", LOG), graceMs: 200 },
        { signal: controller.signal },
      );
      await ready(command);
      controller.abort();
      expect((await command.ended).cause).toMatchObject({ kind: "canceled" });
      await expectGone(sandbox);
    });

    it("canceled twice ends once, with the first reason", async () => {
      const sandbox = await use.create();
      const command = await sandbox.start({ argv: fixture("stubborn.sh", LOG) });
      await ready(command);
      const endings = await Promise.all([
        command.cancel("first", { graceMs: 200 }),
        command.cancel("second", { graceMs: 0 }),
      ]);
      expect(endings.map(({ cause }) => cause)).toEqual([
        { kind: "canceled", by: "first" },
        { kind: "canceled", by: "first" },
      ]);
      await expectGone(sandbox);
    });

    it("leaves its neighbours alone", async () => {
      const sandbox = await use.create();
      const neighbour = await sandbox.start({
        argv: ["bash", "-c", "echo ready; read line; echo $line"],
        stdin: "open",
      });
      const reader = await ready(neighbour);
      const command = await sandbox.start({ argv: fixture("stubborn.sh", LOG) });
      await ready(command);
      await command.cancel("the test", { graceMs: 0 });
      neighbour.stdin?.end("unharmed\n");
      expect(await reader.rest()).toContain("unharmed");
    });

    describe("with a directory of the host to write to", () => {
      let directory: string;
      beforeEach(() => {
        directory = mkdtempSync(OUR_DIRECTORIES);
        chmodSync(directory, 0o711);
        mkdirSync(`${directory}/shared`);
        chmodSync(`${directory}/shared`, 0o777);
      });
      afterEach(() => rmSync(directory, { recursive: true, force: true }));

      const start = async (sandbox: Sandbox) => {
        const command = await sandbox.start({ argv: fixture("stubborn.sh", "/mnt/stubborn.log") });
        await ready(command);
        return command;
      };
      const logSize = () => readFileSync(`${directory}/shared/stubborn.log`).length;
      const expectStill = async () => {
        const size = logSize();
        expect(size).toBeGreaterThan(0);
        await sleep(SETTLE_MS);
        expect(logSize()).toBe(size);
      };
      const mounts = () => [{ source: `${directory}/shared`, target: "/mnt", readOnly: false }];

      it("is gone when its sandbox is killed", async () => {
        const sandbox = await use.create({ mounts: mounts() });
        const command = await start(sandbox);
        const begin = performance.now();
        expect((await sandbox.kill("the test")).cause).toEqual({ kind: "killed", by: "the test" });
        expect(performance.now() - begin).toBeLessThan(patienceMs(2000));
        expect((await command.ended).cause).toEqual({ kind: "canceled", by: "the test" });
        await expectStill();
      });

      it("is gone when its sandbox's life is over", async () => {
        const wallMs = patienceMs(700);
        const sandbox = await use.create({ mounts: mounts(), limits: { ...SMALL_LIMITS, wallMs } });
        const command = await start(sandbox);
        expect((await command.ended).cause).toEqual({ kind: "timed_out", limitMs: wallMs });
        await sandbox.ended;
        await expectStill();
      });

      it("is gone when its engine closes", async () => {
        const before = takeInventory();
        const own = `${directory}/state`;
        const engine = await open(own);
        const sandbox = await engine.create({ mounts: mounts(), limits: SMALL_LIMITS });
        const command = await start(sandbox);
        await engine.close({ sandboxes: "kill" });
        expect((await command.ended).cause).toMatchObject({ kind: "canceled" });
        expect((await sandbox.ended).cause).toMatchObject({ kind: "killed" });
        await expectStill();
        expect(existsSync(`${own}/sandboxes/${sandbox.id}`)).toBe(false);
        await assertNoLeaks(before);
      });
    });
  });
}

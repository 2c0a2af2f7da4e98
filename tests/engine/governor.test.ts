/** The host's budget on the real host: what is promised, to whom, who waits, and what is left of it after sudden deaths. */
import { mkdtempSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type BubblewrapEngine, type BudgetSettings, GUEST_SHARE, ourIdentity, type Waiting } from "@holdfast/engine";
import { ReservationFiles } from "@holdfast/engine/governor";
import type { HoldfastError, SandboxId } from "@holdfast/protocol";
import { beforeAll, describe, expect, test } from "vitest";
import { buildEngine, runScript } from "../helpers/built-engine.js";
import { OUR_DIRECTORIES } from "../helpers/leaks.js";
import { patienceMs } from "../helpers/scale.js";
import { MIB, SMALL_LIMITS, shell } from "../helpers/use-engine.js";
import { useOwnEngines } from "../helpers/use-own-engines.js";

const SIZE = 256 * MIB;
const LIMITS = { ...SMALL_LIMITS, memoryBytes: SIZE };
const LONG_MS = 60_000;

const use = useOwnEngines();
const NO_RESERVE: BudgetSettings = { reserve: { memoryBytes: 0 } };

beforeAll(buildEngine, patienceMs(60_000));

const open = (budget: BudgetSettings = {}): Promise<BubblewrapEngine> => use.open({ budget });

/** An engine on a host that has so much to give. */
async function openWith(memoryBytes: number): Promise<BubblewrapEngine> {
  use.onSmallHost({ memoryBytes });
  return open(NO_RESERVE);
}

const refusalOf = (work: Promise<unknown>): Promise<HoldfastError> =>
  work.then(
    () => Promise.reject(new Error("it was not refused")),
    (reason: HoldfastError) => reason,
  );

describe("a sandbox", () => {
  test("has its part of the budget while it runs, and gives it back with its end", async () => {
    const engine = await open();
    const sandbox = await engine.create({ limits: LIMITS }, { admission: { lane: "key1" } });
    const amounts = {
      memoryBytes: SIZE + GUEST_SHARE.memoryBytes,
      pids: LIMITS.pids + GUEST_SHARE.pids,
      diskBytes: LIMITS.diskBytes,
    };
    const report = await engine.budget();
    expect(report.reservations).toEqual([{ id: sandbox.id, kind: "sandbox", lane: "key1", amounts }]);
    expect(report.reserved).toEqual(amounts);
    await sandbox.kill("the test");
    expect((await engine.budget()).reserved.memoryBytes).toBe(0);
  });

  test("that could never fit is refused at once with the numbers", async () => {
    const engine = await open();
    const { capacity } = await engine.budget();
    const limits = { ...LIMITS, memoryBytes: capacity.memoryBytes + MIB };
    const refusal = await refusalOf(engine.create({ limits }, { admission: { waitMs: LONG_MS } }));
    expect(refusal).toMatchObject({ code: "invalid_argument", details: { capacity: capacity.memoryBytes } });
  });

  test("that does not fit now fails at once or waits, as asked", async () => {
    const engine = await openWith(2.5 * SIZE);
    const [first] = await Promise.all([engine.create({ limits: LIMITS }), engine.create({ limits: LIMITS })]);
    expect(await refusalOf(engine.create({ limits: LIMITS }))).toMatchObject({
      code: "host_capacity",
      details: { resource: "memoryBytes", needed: SIZE + GUEST_SHARE.memoryBytes },
    });
    const seen: Waiting[] = [];
    const third = engine.create(
      { limits: LIMITS },
      { admission: { waitMs: LONG_MS, onWaiting: (waiting) => seen.push(waiting) } },
    );
    await sleep(100);
    expect(seen).toMatchObject([{ position: 1, resource: "memoryBytes" }]);
    await first.kill("the test");
    expect(await shell(await third, "echo in")).toMatchObject({ stdout: "in\n" });
  });

  test("whose creation is canceled while it waits leaves nothing", async () => {
    const engine = await openWith(1.5 * SIZE);
    await engine.create({ limits: LIMITS });
    const leavingNow = AbortSignal.timeout(100);
    const refusal = await refusalOf(
      engine.create({ limits: LIMITS }, { admission: { waitMs: LONG_MS, signal: leavingNow } }),
    );
    expect(refusal.code).toBe("canceled");
    expect((await engine.budget()).reservations).toHaveLength(1);
  });

  test("that stands still takes what it holds, and needs room to go on", async () => {
    const engine = await openWith(1.5 * SIZE);
    const sandbox = await engine.create({ limits: LIMITS });
    await sandbox.freeze();
    expect((await engine.budget()).reserved.memoryBytes).toBeLessThan(64 * MIB);
    const other = await engine.create({ limits: LIMITS });
    expect((await refusalOf(sandbox.thaw())).code).toBe("host_capacity");
    expect(sandbox.state).toBe("frozen");
    const thawed = sandbox.thaw({ waitMs: LONG_MS });
    await other.kill("the test");
    await thawed;
    expect((await shell(sandbox, "echo on")).stdout).toBe("on\n");
    expect((await engine.budget()).reserved.memoryBytes).toBe(SIZE + GUEST_SHARE.memoryBytes);
  });

  test("is frozen, thawed and relieved of memory in the order asked for, and what it is promised fits each", async () => {
    const engine = await openWith(1.5 * SIZE);
    const sandbox = await engine.create({ limits: LIMITS });
    await sandbox.freeze();
    const other = await engine.create({ limits: LIMITS });
    const thawed = sandbox.thaw({ waitMs: LONG_MS });
    const frozenAgain = Promise.all([sandbox.freeze(), sandbox.reclaim()]);
    await other.kill("the test");
    await Promise.all([thawed, frozenAgain]);
    expect(sandbox.state).toBe("frozen");
    expect((await engine.budget()).reserved.memoryBytes).toBeLessThan(64 * MIB);
    for (let round = 0; round < 5; round++) {
      await Promise.all([sandbox.thaw(), sandbox.reclaim(), sandbox.freeze(), sandbox.reclaim(), sandbox.thaw()]);
      expect(sandbox.state).toBe("running");
      expect((await engine.budget()).reserved.memoryBytes).toBe(SIZE + GUEST_SHARE.memoryBytes);
      await sandbox.freeze();
    }
  });

  test("that waits for room to go on can be killed, and let go of", async () => {
    const engine = await openWith(1.5 * SIZE);
    const sandboxes = [];
    for (let i = 0; i < 2; i++) {
      const sandbox = await engine.create({ limits: LIMITS, whenOwnerDies: "keep" });
      await sandbox.freeze();
      sandboxes.push(sandbox);
    }
    await engine.create({ limits: { ...LIMITS, memoryBytes: 224 * MIB } });
    const [killed, kept] = sandboxes.map((sandbox) => refusalOf(sandbox.thaw({ waitMs: LONG_MS })));
    await sandboxes[0]?.kill("the test");
    expect((await killed)?.code).toBe("sandbox_ended");
    await use.closeAll("keep");
    expect((await kept)?.code).toBe("sandbox_ended");
    const next = await open(NO_RESERVE);
    await next.adopt();
    expect(next.get(sandboxes[1]?.id as SandboxId)?.state).toBe("frozen");
  });

  test("grows as far as there is room, and stays as it was beyond", async () => {
    const engine = await openWith(3.5 * SIZE);
    const sandbox = await engine.create({ limits: LIMITS });
    const other = await engine.create({ limits: LIMITS });
    await sandbox.resize({ memoryBytes: 2 * SIZE });
    expect((await engine.budget()).reserved.memoryBytes).toBe(3 * SIZE + 2 * GUEST_SHARE.memoryBytes);
    expect((await refusalOf(sandbox.resize({ memoryBytes: 3 * SIZE }))).code).toBe("host_capacity");
    expect(sandbox.limits.memoryBytes).toBe(2 * SIZE);
    await other.kill("the test");
    await sandbox.resize({ memoryBytes: SIZE / 2 });
    expect((await engine.budget()).reserved.memoryBytes).toBe(SIZE / 2 + GUEST_SHARE.memoryBytes);
  });

  test("that was stopped takes nothing, and is let in again when it is booted", async () => {
    const engine = await openWith(1.5 * SIZE);
    const { id, ...sandbox } = await engine.create({ limits: LIMITS }).then((made) => ({
      id: made.id,
      stop: () => made.stop("the test"),
    }));
    await sandbox.stop();
    expect((await engine.budget()).reserved.memoryBytes).toBe(0);
    const other = await engine.create({ limits: LIMITS });
    expect((await refusalOf(engine.boot(id))).code).toBe("host_capacity");
    await other.kill("the test");
    const booted = await engine.boot(id);
    expect((await engine.budget()).reserved.memoryBytes).toBe(SIZE + GUEST_SHARE.memoryBytes);
    await booted.kill("the test");
  });

  test("of which the creation fails gives back what it was promised", async () => {
    const engine = await open();
    const image = { kind: "rootfs", path: `${use.stateDirectory}/nowhere` } as const;
    await refusalOf(engine.create({ limits: LIMITS, image }));
    expect((await engine.budget()).reservations).toEqual([]);
  });
});

describe("the budget", () => {
  test("is one for all processes, and is never promised twice", { timeout: patienceMs(120_000) }, async () => {
    const room = 2.5 * SIZE;
    await openWith(room);
    const plan = JSON.stringify({ budget: NO_RESERVE, limits: LIMITS, rounds: 8 });
    const directories = [1, 2, 3].map(() => mkdtempSync(OUR_DIRECTORIES));
    try {
      const claimants = directories.map((directory) => runScript("claimant.mjs", [directory, plan]));
      const results = await Promise.all(claimants.map((each) => each.next<{ most: number; rounds: number }>()));
      await Promise.all(claimants.map((each) => each.exited));
      expect(results.map(({ rounds }) => rounds)).toEqual([8, 8, 8]);
      for (const { most } of results) expect(most).toBeLessThanOrEqual(room);
    } finally {
      for (const directory of directories) rmSync(directory, { recursive: true, force: true });
    }
  });

  test("counts what is adopted in this very moment", async () => {
    const directory = mkdtempSync(OUR_DIRECTORIES);
    const amounts = { memoryBytes: MIB, pids: 1, diskBytes: 0 };
    const facts = { kind: "sandbox", lane: "", record: directory } as const;
    const adopter = runScript("promise-adopter.mjs", [directory, JSON.stringify({ amounts })]);
    try {
      await adopter.next();
      const files = new ReservationFiles(directory, ourIdentity());
      let taken = 0;
      // There is room for one of the two.
      for (let i = 0; i < 3000; i++) if (files.take("b", amounts, facts, ({ pids }) => pids <= 1)) taken += 1;
      expect(taken).toBe(0);
      adopter.child.kill("SIGTERM");
      expect((await adopter.next<{ turns: number }>()).turns).toBeGreaterThan(1000);
      await adopter.exited;
    } finally {
      adopter.child.kill("SIGKILL");
      rmSync(directory, { recursive: true });
    }
  });

  test("knows after a sudden death what runs on, and forgets what does not", async () => {
    const kept = { limits: LIMITS, whenOwnerDies: "keep" };
    const ended = { limits: LIMITS, whenOwnerDies: "end" };
    const sandboxes = [kept, ended].map((spec) => ({ spec, commands: [] }));
    const owner = runScript("owner.mjs", [use.stateDirectory, JSON.stringify({ sandboxes })]);
    const { made } = await owner.next<{ made: { id: string }[] }>();
    owner.child.kill("SIGKILL");
    await owner.exited;
    const engine = await open();
    // Both are there until somebody looks: nobody may be given what they hold.
    expect((await engine.budget()).reservations.map(({ id }) => id).sort()).toEqual(made.map(({ id }) => id).sort());
    const [adopted] = await engine.adopt();
    await engine.sweep();
    const { reservations } = await engine.budget();
    expect(reservations).toMatchObject([{ id: made[0]?.id, amounts: { memoryBytes: SIZE + GUEST_SHARE.memoryBytes } }]);
    await adopted?.kill("the test");
    expect((await engine.budget()).reservations).toEqual([]);
  });

  test("is not spent by somebody who was killed before anything was made", async () => {
    const first = await open();
    await first.close({ sandboxes: "kill" });
    const sandboxes = [{ spec: { limits: LIMITS }, commands: [] }];
    const owner = runScript("owner.mjs", [use.stateDirectory, JSON.stringify({ sandboxes, thenCreate: true })]);
    await owner.next();
    // Somewhere in the middle of making sandboxes.
    await sleep(30 + Math.random() * 60);
    owner.child.kill("SIGKILL");
    await owner.exited;
    const engine = await open();
    await engine.sweep();
    expect((await engine.budget()).reservations).toEqual([]);
  });
});

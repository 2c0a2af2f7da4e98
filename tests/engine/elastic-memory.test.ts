/** Memory limits that grow: held, not killed, while there is room on the host; then killed, with a history. */
import { mkdtempSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import {
  BubblewrapEngine,
  type BubblewrapEngineOptions,
  GUEST_SHARE,
  type MemoryEvent,
  type Sandbox,
} from "@holdfast/engine";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { forgiveZombies } from "../helpers/processes.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { makeSmallHost, type SmallHost } from "../helpers/small-host.js";
import { MIB, run, SMALL_LIMITS, shell } from "../helpers/use-engine.js";

const START = 128 * MIB;
const LIMITS = { ...SMALL_LIMITS, memoryBytes: START, memoryMaxBytes: 1024 * MIB };
/** What the kernel keeps for the files of the host and for itself counts too. */
const BUDGET = { reserve: { memoryBytes: 64 * MIB } };
/** Touches every page itself. */
const needs = (mib: number) => ["perl", "-e", `vec($x, ${mib} * 1048576 - 1, 8) = 1; print length $x, "\n"`];
/** Has the kernel write into fresh memory: there nobody can be held. */
const reads = (mib: number) => `head -c ${mib}M /dev/zero | tail -n 1 | wc -c`;

let before: Inventory;
let stateDirectory: string;
let host: SmallHost;
const engines: BubblewrapEngine[] = [];
const parentBefore = process.env.HOLDFAST_CGROUP_PARENT;

beforeEach(() => {
  before = takeInventory();
  stateDirectory = mkdtempSync(OUR_DIRECTORIES);
});
afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.close({ sandboxes: "kill" });
  host.remove();
  if (parentBefore === undefined) delete process.env.HOLDFAST_CGROUP_PARENT;
  else process.env.HOLDFAST_CGROUP_PARENT = parentBefore;
  rmSync(stateDirectory, { recursive: true, force: true });
  await assertNoLeaks(forgiveZombies(before));
});

async function open(memoryBytes: number, options: BubblewrapEngineOptions = {}): Promise<BubblewrapEngine> {
  host = makeSmallHost({ memoryBytes });
  process.env.HOLDFAST_CGROUP_PARENT = host.parent;
  const engine = await BubblewrapEngine.open({ stateDirectory, budget: BUDGET, ...options });
  engines.push(engine);
  return engine;
}

function follow(sandbox: Sandbox): MemoryEvent[] {
  const events: MemoryEvent[] = [];
  sandbox.onMemory((event) => events.push(event));
  return events;
}

/** A neighbour takes what room is left, but for less than anybody could grow by. */
async function fill(engine: BubblewrapEngine): Promise<Sandbox> {
  const { room, reserved } = await engine.budget();
  const memoryBytes = room.memoryBytes - reserved.memoryBytes - GUEST_SHARE.memoryBytes - 8 * MIB;
  return engine.create({ limits: { ...SMALL_LIMITS, memoryBytes } });
}

const reservedOf = async (engine: BubblewrapEngine, { id }: Sandbox) =>
  (await engine.budget()).reservations.find((reservation) => reservation.id === id)?.amounts.memoryBytes;

describe("a program that needs 600 MiB, in a sandbox of 128 MiB", { timeout: patienceMs(120_000) }, () => {
  test("with a ceiling of 1 GiB finishes as if nothing had happened", async () => {
    const engine = await open(2048 * MIB);
    const sandbox = await engine.create({ limits: LIMITS });
    const events = follow(sandbox);
    expect(await run(sandbox, needs(600))).toMatchObject({
      stdout: `${600 * MIB}\n`,
      cause: { kind: "exited", code: 0 },
    });
    expect((await sandbox.stats()).memoryPeakBytes).toBeGreaterThan(600 * MIB);
    expect(sandbox.limits.memoryBytes).toBeGreaterThan(600 * MIB);
    expect(sandbox.limits.memoryBytes).toBeLessThanOrEqual(1024 * MIB);
    expect(await reservedOf(engine, sandbox)).toBe(sandbox.limits.memoryBytes + GUEST_SHARE.memoryBytes);
    expect(sandbox.limitHistory[0]).toMatchObject({ fromBytes: START });
    expect(sandbox.limitHistory.at(-1)).toMatchObject({ toBytes: sandbox.limits.memoryBytes });
    expect(events.filter(({ kind }) => kind === "grown")).toHaveLength(sandbox.limitHistory.length);
    expect(host.oomKills()).toBe(0);
  });

  test("finishes too if it is the kernel that fills its memory", async () => {
    const sandbox = await (await open(2048 * MIB)).create({ limits: LIMITS });
    for (let round = 0; round < scaled(3, 1); round++) {
      expect(await shell(sandbox, reads(600))).toMatchObject({ stdout: `${600 * MIB}\n`, stderr: "" });
    }
  });

  test("without room on the host waits, and finishes when a neighbour ends", async () => {
    const engine = await open(964 * MIB);
    const neighbour = await engine.create({ limits: { ...SMALL_LIMITS, memoryBytes: 500 * MIB } });
    const sandbox = await engine.create({ limits: LIMITS });
    const events = follow(sandbox);
    const finished = run(sandbox, needs(600));
    await expect.poll(() => events.map(({ kind }) => kind), { timeout: patienceMs(20_000) }).toContain("waiting");
    expect(events.find(({ kind }) => kind === "waiting")).toMatchObject({
      waiting: { position: 1, resource: "memoryBytes" },
    });
    await neighbour.kill("the test");
    expect(await finished).toMatchObject({ stdout: `${600 * MIB}\n`, cause: { kind: "exited", code: 0 } });
    expect(sandbox.limitHistory.some(({ heldMs }) => (heldMs ?? 0) > 0)).toBe(true);
    expect(host.oomKills()).toBe(0);
  });

  test("with a ceiling of 256 MiB is killed for memory, with the history of its limit", async () => {
    const engine = await open(2048 * MIB);
    const sandbox = await engine.create({ limits: { ...LIMITS, memoryMaxBytes: 256 * MIB } });
    const events = follow(sandbox);
    const ended = await run(sandbox, needs(600));
    expect(ended.cause).toMatchObject({ kind: "out_of_memory", scope: "sandbox", limitBytes: 256 * MIB });
    const { limitHistory } = ended.cause as unknown as { limitHistory: { fromBytes: number; toBytes: number }[] };
    expect(limitHistory[0]?.fromBytes).toBe(START);
    expect(limitHistory.at(-1)?.toBytes).toBe(256 * MIB);
    expect(ended.message).toContain("which had moved from 128 MiB to");
    expect(ended.message).toMatch(/Try --memory 128m\.\.512m\.$/);
    // The sandbox lives on, and so do commands that fit.
    expect((await shell(sandbox, "echo on")).stdout).toBe("on\n");
    expect(events.at(-1)?.kind).toMatch(/grown|let_go/);
  });

  test("for which there never is room is killed after the time to wait, and said so", async () => {
    const engine = await open(364 * MIB, { holdMs: 500 });
    const sandbox = await engine.create({ limits: LIMITS });
    const events = follow(sandbox);
    const ended = await run(sandbox, needs(600));
    expect(ended.cause).toMatchObject({ kind: "out_of_memory", scope: "sandbox" });
    expect(events.find(({ kind }) => kind === "let_go")).toMatchObject({ why: "the host had no room for more" });
    expect((await shell(sandbox, "echo on")).stdout).toBe("on\n");
    expect(host.oomKills()).toBe(0);
  });
});

describe("a sandbox that is held without room", { timeout: patienceMs(90_000) }, () => {
  async function hold(holdMs: number) {
    const engine = await open(964 * MIB, { holdMs });
    await engine.create({ limits: { ...SMALL_LIMITS, memoryBytes: 500 * MIB } });
    const sandbox = await engine.create({ limits: LIMITS });
    const events = follow(sandbox);
    const hungry = await sandbox.start({ argv: needs(600) });
    const isHeld = () => events.some(({ kind }) => kind === "waiting");
    await expect.poll(isHeld, { timeout: patienceMs(20_000) }).toBe(true);
    return { sandbox, events, hungry };
  }

  test("begins nothing new before that is over: commands and files wait for it", async () => {
    const { sandbox, events, hungry } = await hold(3000);
    const list = async () => {
      for await (const _ of sandbox.files.list("/tmp"));
      return "listed";
    };
    const watch = async () => {
      const leaving = new AbortController();
      await sandbox.files.watch("/tmp", { signal: leaving.signal });
      leaving.abort();
      return events.some(({ kind }) => kind === "let_go");
    };
    const [said, written, listed, isWatchedAfter] = await Promise.all([
      shell(sandbox, "echo on"),
      sandbox.files.write("/tmp/file", "content"),
      list(),
      watch(),
    ]);
    expect(events.map(({ kind }) => kind)).toContain("let_go");
    expect((await hungry.ended).cause).toMatchObject({ kind: "out_of_memory" });
    expect([said.stdout, written.sizeBytes, listed, isWatchedAfter]).toEqual(["on\n", 7, "listed", true]);
  });

  test("and no longer needs more is not waited for, nor killed", async () => {
    const { sandbox, events, hungry } = await hold(60_000);
    await hungry.cancel("the test");
    expect((await hungry.ended).cause).toMatchObject({ kind: "canceled" });
    const isOver = () => events.some(({ kind }) => kind === "waited");
    await expect.poll(isOver, { timeout: patienceMs(20_000) }).toBe(true);
    expect((await shell(sandbox, "echo on")).stdout).toBe("on\n");
    expect(events.map(({ kind }) => kind)).not.toContain("let_go");
  });
});

describe("a sandbox that has almost used up its limit", { timeout: patienceMs(90_000) }, () => {
  test("and asks for no more is left alone, although there is no room", async () => {
    const engine = await open(512 * MIB, { holdMs: 500 });
    const sandbox = await engine.create({ limits: LIMITS });
    await fill(engine);
    const events = follow(sandbox);
    const idle = await sandbox.start({
      argv: ["perl", "-e", `vec($x, 116 * 1048576 - 1, 8) = 1; $| = 1; print 1; sleep`],
    });
    for await (const { kind } of idle.output()) if (kind === "data") break;
    // On its way there it may have asked; that is seen to first.
    await sleep(4000);
    await expect.poll(() => events.at(-1)?.kind ?? "let_go", { timeout: patienceMs(20_000) }).toBe("let_go");
    const seen = events.map(({ kind }) => kind);
    // Long enough for several holds, and for a look at those who sit idle.
    await sleep(12_000);
    expect(events.map(({ kind }) => kind)).toEqual(seen);
    expect(sandbox.limits.memoryBytes).toBe(START);
  });
});

describe("a sandbox that is held", { timeout: patienceMs(60_000) }, () => {
  /** There would be room for it, but a neighbour has that. */
  async function held() {
    const engine = await open(964 * MIB);
    const neighbour = await engine.create({ limits: { ...SMALL_LIMITS, memoryBytes: 500 * MIB } });
    const sandbox = await engine.create({ limits: LIMITS, whenOwnerDies: "keep" });
    const events = follow(sandbox);
    const command = await sandbox.start({ argv: needs(600) });
    await expect.poll(() => events.map(({ kind }) => kind), { timeout: patienceMs(20_000) }).toContain("waiting");
    return { engine, neighbour, sandbox, command };
  }

  test("can be killed, and its budget is free again", async () => {
    const { engine, neighbour, sandbox, command } = await held();
    await sandbox.kill("the test");
    expect((await command.ended).cause).toMatchObject({ kind: "canceled" });
    expect((await engine.budget()).reservations.map(({ id }) => id)).toEqual([neighbour.id]);
  });

  test("can be canceled command by command, and goes on", async () => {
    const { sandbox, command } = await held();
    await command.cancel("the test");
    expect((await command.ended).cause).toMatchObject({ kind: "canceled" });
    expect((await shell(sandbox, "echo on")).stdout).toBe("on\n");
  });

  test("is given more by whoever adopts it", async () => {
    const { engine: first, neighbour, sandbox } = await held();
    await first.close({ sandboxes: "keep" });
    const second = await BubblewrapEngine.open({ stateDirectory, budget: BUDGET });
    engines.push(second);
    await second.adopt();
    const adopted = second.get(sandbox.id) as Sandbox;
    await second.get(neighbour.id)?.kill("the test");
    const [{ id: command } = { id: 0 }] = await adopted.commands();
    expect((await (await adopted.attach(command)).ended).cause).toEqual({ kind: "exited", code: 0 });
  });

  test("freezes and goes on, still short of memory", async () => {
    const { neighbour, sandbox, command } = await held();
    await sandbox.freeze();
    expect(sandbox.state).toBe("frozen");
    await neighbour.kill("the test");
    await sandbox.thaw();
    expect((await command.ended).cause).toEqual({ kind: "exited", code: 0 });
  });
});

describe("a limit with a ceiling", { timeout: patienceMs(60_000) }, () => {
  test("is seen from inside as what it can come to", async () => {
    const sandbox = await (await open(2048 * MIB)).create({ limits: LIMITS });
    const { stdout } = await shell(sandbox, "awk '/^MemTotal/ {print $2}' /proc/meminfo");
    expect(Number(stdout) * 1024).toBe(1024 * MIB);
  });

  test("does not keep a command from being killed at a limit of its own", async () => {
    const sandbox = await (await open(2048 * MIB)).create({ limits: LIMITS });
    const command = await sandbox.start({ argv: needs(200), limits: { memoryBytes: 64 * MIB } });
    expect((await command.ended).cause).toMatchObject({
      kind: "out_of_memory",
      scope: "command",
      limitBytes: 64 * MIB,
    });
  });

  test("can be given to a sandbox that runs, moved and taken away", async () => {
    const engine = await open(2048 * MIB);
    const sandbox = await engine.create({ limits: { ...SMALL_LIMITS, memoryBytes: START } });
    await sandbox.resize({ memoryMaxBytes: 1024 * MIB });
    expect((await run(sandbox, needs(300))).cause).toEqual({ kind: "exited", code: 0 });
    await sandbox.resize({ memoryBytes: START, memoryMaxBytes: START });
    expect((await run(sandbox, needs(300))).cause).toMatchObject({ kind: "out_of_memory" });
    expect(await reservedOf(engine, sandbox)).toBe(START + GUEST_SHARE.memoryBytes);
  });

  test("is lowered while page cache fills it, and raised by whoever asks next", async () => {
    const engine = await open(2048 * MIB);
    const limits = { ...LIMITS, memoryBytes: 512 * MIB, diskBytes: 512 * MIB };
    const sandbox = await engine.create({ limits });
    await shell(sandbox, "head -c 400M /dev/zero > ~/cache; sync; cat ~/cache > /dev/null");
    // The kernel adds up what ended commands have left some time later.
    await expect
      .poll(async () => (await sandbox.stats()).memoryCacheBytes, { timeout: patienceMs(10_000) })
      .toBeGreaterThan(100 * MIB);
    const asked = [128, 640, 160, 768].map((mib) => sandbox.resize({ memoryBytes: mib * MIB }));
    await Promise.all(asked);
    expect(sandbox.limits.memoryBytes).toBe(768 * MIB);
    expect(await reservedOf(engine, sandbox)).toBe(768 * MIB + GUEST_SHARE.memoryBytes);
    expect((await run(sandbox, needs(600))).cause).toEqual({ kind: "exited", code: 0 });
  });

  test("that cannot be lowered so far stays what it was", async () => {
    const engine = await open(2048 * MIB);
    const sandbox = await engine.create({ limits: { ...SMALL_LIMITS, memoryBytes: 512 * MIB } });
    const command = await sandbox.start({
      argv: ["perl", "-e", `vec($x, 300 * 1048576, 8) = 1; $| = 1; print 1; sleep`],
    });
    for await (const { kind } of command.output()) if (kind === "data") break;
    await expect(sandbox.resize({ memoryBytes: 128 * MIB })).rejects.toMatchObject({ code: "invalid_argument" });
    expect(await reservedOf(engine, sandbox)).toBe(512 * MIB + GUEST_SHARE.memoryBytes);
    expect((await run(sandbox, needs(160))).cause).toEqual({ kind: "exited", code: 0 });
  });

  test("starts anew in a sandbox that was stopped and is booted", async () => {
    const engine = await open(2048 * MIB);
    const sandbox = await engine.create({ limits: LIMITS });
    await run(sandbox, needs(300));
    expect(sandbox.limits.memoryBytes).toBeGreaterThan(START);
    await sandbox.stop("the test");
    const booted = await engine.boot(sandbox.id);
    expect(booted.limits).toMatchObject({ memoryBytes: START, memoryMaxBytes: 1024 * MIB });
    expect(await reservedOf(engine, booted)).toBe(START + GUEST_SHARE.memoryBytes);
    expect((await run(booted, needs(300))).cause).toEqual({ kind: "exited", code: 0 });
  });

  test("below where the limit starts is refused by name", async () => {
    const engine = await open(2048 * MIB);
    await expect(engine.create({ limits: { ...LIMITS, memoryMaxBytes: START - 1 } })).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining("limits.memoryMaxBytes"),
    });
  });
});

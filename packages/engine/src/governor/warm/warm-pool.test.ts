import { setTimeout as sleep } from "node:timers/promises";
import { createSandboxId, HoldfastError, type SandboxId } from "@holdfast/protocol";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { WarmSettings } from "../../warm.js";
import type { Amounts } from "../amounts.js";
import { WarmPool, type WarmThing } from "./warm-pool.js";

const AMOUNTS: Amounts = { memoryBytes: 100, pids: 10, diskBytes: 1000 };
const SETTINGS: WarmSettings = { perShape: 2, total: 3, maxAgeMs: 60_000, keepFreeShare: 0 };

class Thing implements WarmThing {
  readonly id: SandboxId = createSandboxId();
  readonly amounts = AMOUNTS;
  readonly gone: Promise<void>;
  die!: () => void;
  isTaken = false;
  hasEnded = false;
  fit = true;
  current = true;

  constructor() {
    this.gone = new Promise((resolve) => {
      this.die = resolve;
    });
  }

  take(): boolean {
    if (this.isTaken) return false;
    this.isTaken = true;
    return true;
  }
  putBack(): boolean {
    this.isTaken = false;
    return true;
  }
  async isFit(): Promise<boolean> {
    await sleep(0);
    return this.fit;
  }
  isCurrent(): boolean {
    return this.current;
  }
  held() {
    return { memoryBytes: 1, pids: 2 };
  }
  async end(): Promise<void> {
    await sleep(0);
    this.hasEnded = true;
  }
}

let now: number;
let made: Thing[];
let makeFails: HoldfastError | undefined;
let hasRoom: boolean;
let pool: WarmPool<Thing, string>;

function open(settings: Partial<WarmSettings> = {}): void {
  pool = new WarmPool<Thing, string>({
    settings: { ...SETTINGS, ...settings },
    make: async () => {
      await sleep(0);
      if (makeFails !== undefined) throw makeFails;
      const thing = new Thing();
      made.push(thing);
      return thing;
    },
    canSpare: () => hasRoom,
    log: { info: () => {}, warn: () => {} },
    now: () => now,
  });
}

beforeEach(() => {
  now = 0;
  made = [];
  makeFails = undefined;
  hasRoom = true;
  open();
});
afterEach(() => pool.close());

/** As somebody who asks and gets one, or makes one of their own. */
async function ask(shape: string): Promise<Thing | undefined> {
  const thing = await pool.claim(shape, shape);
  if (thing !== undefined) pool.handedOut(thing.id);
  await pool.idle();
  return thing;
}

test("what was asked for is ready for the next, and as many as were asked for", async () => {
  expect(await ask("a")).toBeUndefined();
  expect(pool.stats()).toMatchObject({ ready: 1, misses: 1, hits: 0, reserved: AMOUNTS, used: { pids: 2 } });
  expect(await ask("a")).toBe(made[0]);
  expect(pool.stats()).toMatchObject({ ready: 2, made: 3, misses: 1, hits: 1 });
  await ask("b");
  await ask("c");
  expect(pool.stats().ready).toBe(3);
});

test("nothing is given to two, however many ask at once", async () => {
  await ask("a");
  await ask("a");
  const claims = await Promise.all(Array.from({ length: 100 }, () => pool.claim("a", "a")));
  const got = claims.filter((thing) => thing !== undefined);
  expect(got).toHaveLength(2);
  expect(new Set(got).size).toBe(2);
  for (const thing of got) pool.putBack(thing.id);
  expect(pool.stats().ready).toBe(2);
});

test("one that is not fit, too old, dead or taken by another process is not given out", async () => {
  await ask("a");
  (made[0] as Thing).fit = false;
  expect(await ask("a")).toBeUndefined();
  now += 60_000;
  expect(await ask("a")).toBeUndefined();
  await pool.idle();
  made.at(-1)?.die();
  await sleep(0);
  const [left] = made.filter(({ hasEnded, isTaken }) => !hasEnded && !isTaken);
  (left as Thing).isTaken = true;
  expect(await ask("a")).toBeUndefined();
  const { waste } = pool.stats();
  expect(waste).toMatchObject({ unhealthy: 2, evicted: 1 });
  expect(waste.age).toBeGreaterThan(0);
});

test("what is short is given back, the least wanted first, and nothing is made for a while", async () => {
  await ask("a");
  await ask("a");
  await ask("b");
  expect(await pool.giveBack("memoryBytes", 100)).toBe(true);
  expect(pool.stats()).toMatchObject({ ready: 2, waste: { evicted: 1 } });
  expect(made.filter(({ hasEnded }) => hasEnded)).toEqual([made[3]]);
  expect(await pool.giveBack("memoryBytes", 1000)).toBe(true);
  expect(await pool.giveBack("memoryBytes", 1000)).toBe(false);
  await ask("a");
  expect(pool.stats().ready).toBe(0);
  now += 10_000;
  await ask("a");
  expect(pool.stats().ready).toBe(3);
});

test("nothing is made without room, or when it may not be", async () => {
  hasRoom = false;
  await ask("a");
  expect(made).toEqual([]);
  await pool.close();
  hasRoom = true;
  open({ mayWarm: () => false });
  await ask("a");
  expect(made).toEqual([]);
});

test("what cannot be made is tried again ever later", async () => {
  makeFails = new HoldfastError("engine_fault", "no");
  await ask("a");
  await ask("a");
  expect(pool.stats().failures).toBe(1);
  now += 1000;
  await ask("a");
  await ask("a");
  expect(pool.stats().failures).toBe(2);
  makeFails = undefined;
  now += 2000;
  await ask("a");
  expect(pool.stats().ready).toBe(2);
});

test("shapes are drained by what they stand on, and forgotten", async () => {
  await ask("a");
  await ask("b");
  await pool.drain((spec) => spec === "a");
  expect(pool.stats()).toMatchObject({ ready: 1, waste: { drained: 1 } });
  await ask("b");
  expect(pool.stats().ready).toBe(2);
});

test("switched off or closed it makes nothing, and leaves nothing", async () => {
  await ask("a");
  const claimed = await pool.claim("a", "a");
  await pool.close();
  expect(claimed?.hasEnded).toBe(true);
  expect(pool.handedOut(claimed?.id as SandboxId)).toBe(false);
  expect(made.every(({ hasEnded }) => hasEnded)).toBe(true);
  for (const off of [{ perShape: 0 }, { total: 0 }]) {
    open(off);
    expect(await ask("a")).toBeUndefined();
    expect(pool.stats()).toMatchObject({ ready: 0, misses: 0 });
  }
});

/**
 * One engine for all tests of a describe block: opening one costs a second, most of it for mkfs. Each test has sandboxes
 * of its own, and after each nothing of them is left.
 */
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Engine, Sandbox, SandboxSpec } from "@holdfast/engine";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "./leaks.js";
import { patienceMs } from "./scale.js";
import { SMALL_LIMITS } from "./use-engine.js";

export type OpenEngine = (stateDirectory: string) => Promise<Engine>;

export interface SharedEngine {
  readonly engine: Engine;
  readonly stateDirectory: string;
  create(spec?: Partial<SandboxSpec>): Promise<Sandbox>;
}

export function sandboxesLeftIn(stateDirectory: string): string[] {
  const directory = join(stateDirectory, "sandboxes");
  return existsSync(directory) ? readdirSync(directory) : [];
}

/** Call it at the top of a describe block; the returned object is filled before its tests. */
export function useSharedEngine(open: OpenEngine): SharedEngine {
  const shared = {} as { -readonly [K in keyof SharedEngine]: SharedEngine[K] };
  let beforeEngine: Inventory;
  let beforeTest: Inventory;
  let leftBefore: string[];
  beforeAll(async () => {
    beforeEngine = takeInventory();
    shared.stateDirectory = mkdtempSync(OUR_DIRECTORIES);
    shared.engine = await open(shared.stateDirectory);
    shared.create = (spec = {}) => shared.engine.create({ limits: SMALL_LIMITS, ...spec });
    // The first sandbox of a state directory also makes its image; no test shall pay for that.
    await (await shared.create()).kill("the warm-up");
  }, patienceMs(20_000));
  beforeEach(() => {
    beforeTest = takeInventory();
    leftBefore = sandboxesLeftIn(shared.stateDirectory);
  });
  afterEach(async () => {
    await Promise.all(shared.engine.list().map((sandbox) => sandbox.kill("the end of the test")));
    // What an earlier test left is that one's failure.
    expect(sandboxesLeftIn(shared.stateDirectory).filter((id) => !leftBefore.includes(id))).toEqual([]);
    await assertNoLeaks(beforeTest);
  });
  afterAll(async () => {
    await shared.engine.close({ sandboxes: "kill" });
    rmSync(shared.stateDirectory, { recursive: true, force: true });
    await assertNoLeaks(beforeEngine);
  });
  return shared;
}

/** Layers outlive processes; what killed ones left is whole or swept, and nobody takes a layer from another process. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BubblewrapEngine, createLayerId, type LayerId, type PoolKind, type Sandbox } from "@holdfast/engine";
import type { SandboxId } from "@holdfast/protocol";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { buildEngine, runScript, type ScriptProcess } from "../helpers/built-engine.js";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { forgiveZombies } from "../helpers/processes.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { sandboxesLeftIn } from "../helpers/shared-engine.js";
import { run, SMALL_LIMITS, shell } from "../helpers/use-engine.js";
import { addBusybox, layersLeftIn, makeLayer, onLayers } from "./layer-images.js";

let before: Inventory;
let stateDirectory: string;
let engine: BubblewrapEngine | undefined;

beforeAll(buildEngine, patienceMs(60_000));
beforeEach(() => {
  before = takeInventory();
  stateDirectory = mkdtempSync(OUR_DIRECTORIES);
});

const isMounted = () => readFileSync("/proc/self/mountinfo", "utf8").includes(` ${stateDirectory}/pool `);

describe.each(["btrfs", "dir"] as const)("in a %s pool", (pool: PoolKind) => {
  const open = async () => {
    engine = await BubblewrapEngine.open({ stateDirectory, pool });
    return engine;
  };
  const close = async (sandboxes: "kill" | "keep" = "kill") => {
    await engine?.close({ sandboxes });
    engine = undefined;
  };
  afterEach(async () => {
    const last = engine ?? (await open());
    await last.sweep();
    for (const id of last.stopped()) await last.discard(id);
    for (const id of last.layers.list()) await last.layers.remove(id);
    expect(layersLeftIn(stateDirectory)).toEqual([]);
    await close();
    expect(sandboxesLeftIn(stateDirectory)).toEqual([]);
    expect(isMounted()).toBe(false);
    rmSync(stateDirectory, { recursive: true, force: true });
    await assertNoLeaks(forgiveZombies(before));
  });

  async function kill(script: ScriptProcess): Promise<void> {
    script.child.kill("SIGKILL");
    expect((await script.exited).signal).toBe("SIGKILL");
  }

  /** Starts one that makes layers, and kills it while it makes its n-th. */
  async function makeAndKill(way: string, n: number): Promise<{ layer: LayerId; sandbox: SandboxId }> {
    const plan = { way, pool, spec: { limits: SMALL_LIMITS } };
    const maker = runScript("layer-maker.mjs", [stateDirectory, JSON.stringify(plan)]);
    let said = await maker.next<{ layer: LayerId; sandbox: SandboxId }>();
    for (let i = 0; i < n; i++) said = await maker.next();
    await sleep(Math.random() * patienceMs(way === "snapshot" ? 50 : 15));
    await kill(maker);
    return said;
  }

  /** The layers that are there hold what was put there, and nothing else is left. */
  function expectWhole(current: BubblewrapEngine): void {
    for (const id of current.layers.list()) {
      expect(readFileSync(join(current.layers.path(id), "kept"), "utf8")).toBe("text\n");
    }
    expect(layersLeftIn(stateDirectory).sort()).toEqual(current.layers.list().sort());
  }

  it("a draft is a layer or nothing after a SIGKILL", { timeout: patienceMs(60_000) }, async () => {
    const seen = { whole: 0, nothing: 0 };
    for (let i = 0; i < scaled(10, 3); i++) {
      const { layer } = await makeAndKill("draft", i % 3);
      const current = await open();
      await current.sweep();
      expectWhole(current);
      seen[current.layers.has(layer) ? "whole" : "nothing"] += 1;
      await close();
    }
    console.log(`${seen.whole} whole, ${seen.nothing} nothing`);
  });

  it("a stopped sandbox is that or a layer after a SIGKILL", { timeout: patienceMs(120_000) }, async () => {
    const seen = { sandbox: 0, layer: 0 };
    for (let i = 0; i < scaled(16, 4); i++) {
      const { layer, sandbox } = await makeAndKill("stopped", i % 3);
      const current = await open();
      if (i % 2 === 0) await current.adopt();
      await current.sweep();
      expectWhole(current);
      const isLayer = current.layers.has(layer);
      expect(current.stopped().includes(sandbox)).toBe(!isLayer);
      seen[isLayer ? "layer" : "sandbox"] += 1;
      for (const id of current.stopped()) {
        const booted = await current.boot(id);
        expect((await run(booted, ["cat", "/kept"])).stdout).toBe("text\n");
        await booted.kill("the test");
      }
      await close();
    }
    console.log(`${seen.layer} layers, ${seen.sandbox} sandboxes`);
  });

  it("a sandbox whose disk has become a layer is gone, also for whoever asks before any sweep", async () => {
    const current = await open();
    const sandbox = await current.create({ limits: SMALL_LIMITS });
    await shell(sandbox, "echo text >/kept", { user: "root" });
    await sandbox.stop("the test");
    // As a process leaves it that is killed between the two last steps.
    const recordPath = join(stateDirectory, "sandboxes", sandbox.id, "record.json");
    const record = JSON.parse(readFileSync(recordPath, "utf8")) as { disk: { path: string } };
    const id = createLayerId();
    await current.layers.fromStopped(sandbox.id, id);
    mkdirSync(join(stateDirectory, "sandboxes", sandbox.id));
    writeFileSync(recordPath, JSON.stringify({ ...record, becomes: id }));
    writeFileSync(join(stateDirectory, "sandboxes", sandbox.id, "owner.4194303.1"), "");
    expect(current.stopped()).toEqual([]);
    await expect(current.boot(sandbox.id)).rejects.toMatchObject({ code: "sandbox_not_found" });
    expect(sandboxesLeftIn(stateDirectory)).toEqual([]);
    expectWhole(current);
  });

  it("a sandbox whose owner is killed during a snapshot runs on", { timeout: patienceMs(120_000) }, async () => {
    const seen = { whole: 0, nothing: 0 };
    for (let i = 0; i < scaled(12, 4); i++) {
      const { layer, sandbox } = await makeAndKill("snapshot", i % 4);
      const current = await open();
      const [adopted] = await current.adopt();
      expect(adopted).toMatchObject({ id: sandbox, state: "running" });
      const count = async () => Number((await run(adopted as Sandbox, ["cat", "/count"])).stdout);
      const first = await count();
      await expect.poll(count, { timeout: patienceMs(2000) }).toBeGreaterThan(first);
      await current.sweep();
      expectWhole(current);
      seen[current.layers.has(layer) ? "whole" : "nothing"] += 1;
      await adopted?.kill("the test");
      await close();
    }
    console.log(`${seen.whole} whole, ${seen.nothing} nothing`);
  });

  it("a sandbox that somebody froze stays frozen for whoever adopts it", async () => {
    const sandbox = await (await open()).create({ limits: SMALL_LIMITS });
    await sandbox.freeze();
    await sandbox.snapshot(createLayerId());
    await close("keep");
    const [adopted] = await (await open()).adopt();
    expect(adopted?.state).toBe("frozen");
  });

  it("a layer is not removed under another process's sandbox", { timeout: patienceMs(120_000) }, async () => {
    const current = await open();
    const user = runScript("layer-user.mjs", [stateDirectory, pool, JSON.stringify({ limits: SMALL_LIMITS })]);
    await user.next();
    const seen = { made: 0, removed: 0 };
    for (let i = 0; i < scaled(60, 8); i++) {
      const layer = await makeLayer(current, (directory) => addBusybox(directory));
      user.child.stdin?.write(`${layer}\n`);
      // Around the moment at which the other says on what it stands, and looks.
      const until = performance.now() + Math.random() * (i % 2 === 0 ? 3 : 30);
      while (performance.now() < until);
      const removal = await current.layers.remove(layer).then(
        () => "removed",
        (error: unknown) => (error as { code: string }).code,
      );
      const said = await user.next<{ made?: string; code?: string; cause?: unknown }>();
      if (said.made === undefined) {
        seen.removed += 1;
        expect([removal, said.code]).toEqual(["removed", "image_not_found"]);
      } else {
        seen.made += 1;
        expect([removal, said.cause]).toEqual(["image_in_use", { kind: "exited", code: 0 }]);
        user.child.stdin?.write("\n");
        await user.next();
        await current.layers.remove(layer);
      }
      expect(layersLeftIn(stateDirectory)).toEqual([]);
    }
    console.log(`${seen.made} made, ${seen.removed} removed`);
    user.child.stdin?.end();
    expect(await user.exited).toEqual({ code: 0, signal: null });
  });

  it("a removal that was cut off before it was decided is forgotten, one that was decided is finished", async () => {
    const current = await open();
    const [used, decided] = await Promise.all(
      [1, 2].map(() => makeLayer(current, (directory) => addBusybox(directory))),
    );
    const sandbox = await current.create({ limits: SMALL_LIMITS, ...onLayers(used as LayerId) });
    await sandbox.stop("the test");
    const layers = join(stateDirectory, pool === "btrfs" ? "pool" : "disks", "layers");
    const dead = "4194303.1.0123456789ab.1";
    writeFileSync(join(layers, `.leaving-${used}.${dead}`), "");
    renameSync(join(layers, decided as string), join(layers, `.rest-${decided}.${dead}`));
    const again = await current.boot(sandbox.id);
    expect((await run(again, ["echo", "well"])).stdout).toBe("well\n");
    await again.kill("the test");
    await current.sweep();
    expect(current.layers.list()).toEqual([used]);
    expect(layersLeftIn(stateDirectory)).toEqual([used]);
  });

  it("layers and stopped sandboxes wait without a mount; running ones keep theirs", async () => {
    const current = await open();
    const base = await makeLayer(current, (directory) => addBusybox(directory));
    const stopped = await current.create({ limits: SMALL_LIMITS, ...onLayers(base) });
    await stopped.stop("the test");
    await close();
    expect(isMounted()).toBe(false);
    if (pool === "btrfs") expect(readdirSync(join(stateDirectory, "pool"))).toEqual([]);
    const again = await open();
    expect(again.layers.list()).toEqual([base]);
    expect(again.stopped()).toEqual([stopped.id]);
    const running = await again.boot(stopped.id);
    await shell(running, "echo text >/file");
    await close("keep");
    expect(isMounted()).toBe(pool === "btrfs");
    const [adopted] = await (await open()).adopt();
    expect((await run(adopted as Sandbox, ["cat", "/file"])).stdout).toBe("text\n");
    expect((await adopted?.stats())?.diskBytes).toBeGreaterThan(0);
    await adopted?.kill("the test");
    expect(existsSync(join(stateDirectory, "sandboxes", stopped.id))).toBe(false);
  });
});

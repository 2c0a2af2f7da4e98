/** Several processes work on the same images, and some of them are killed in the middle of it. */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BubblewrapEngine, type LayerId } from "@holdfast/engine";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { layersOf } from "../../packages/images/src/store/records.js";
import { runScript, type ScriptProcess } from "../helpers/built-engine.js";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { forgiveZombies } from "../helpers/processes.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { buildImages, openTestImages, type TestImages } from "../helpers/use-images.js";

const KILLS = scaled(25, 5);
const PROCESSES = 8;

beforeAll(buildImages, patienceMs(60_000));

/** What must hold at every moment, whoever was killed. */
function expectSound({ store }: Images): void {
  expect(store.problems()).toEqual([]);
  for (const record of store.list()) expect(store.missingLayers(record)).toEqual([]);
  for (const { name } of store.names()) expect(store.require(`${name.name}:${name.tag}`, null)).toBeDefined();
}

/** What is there beside what the images need: nothing. */
async function expectNothingLeft({ store, engine }: Images): Promise<void> {
  await engine.sweep();
  await store.recover();
  await store.prune({ all: true });
  const needed = new Set(store.list().flatMap(layersOf));
  expect(engine.layers.list().filter((layer) => !needed.has(layer))).toEqual([]);
  for (const directory of ["tmp", "claims", "going", "steps"]) {
    expect(readdirSync(join(store.directory, directory))).toEqual([]);
  }
  expect(
    readdirSync(join(store.directory, "builds")).flatMap((id) => readdirSync(join(store.directory, "builds", id))),
  ).toEqual([]);
  expect(await store.prune({ all: true })).toMatchObject({ images: [], layers: [], freedBytes: 0 });
}

type Images = TestImages & { readonly engine: BubblewrapEngine; readonly stateDirectory: string };

/** As `useImages`; but the children of killed processes are nobody's to reap here, and stay as zombies. */
function useImagesOfTheKilled(): Images {
  const inUse = {} as Images;
  let before: Inventory;
  beforeEach(async () => {
    before = takeInventory();
    const stateDirectory = mkdtempSync(OUR_DIRECTORIES);
    const engine = await BubblewrapEngine.open({ stateDirectory, pool: "dir" });
    Object.assign(inUse, { engine, stateDirectory, ...openTestImages(engine, stateDirectory, { graceMs: 0 }) });
  });
  afterEach(async () => {
    await inUse.engine.close({ sandboxes: "kill" });
    rmSync(inUse.stateDirectory, { recursive: true, force: true });
    await assertNoLeaks(forgiveZombies(before));
  });
  return inUse;
}

function churn(inUse: Images): ScriptProcess {
  return runScript("image-store.mjs", [inUse.stateDirectory, JSON.stringify({ mode: "churn" })]);
}

describe("the store", () => {
  const inUse = useImagesOfTheKilled();

  test(
    "is sound after a process was killed in the middle of whatever it did, and nothing is left of that",
    async () => {
      for (let kill = 0; kill < KILLS; kill++) {
        const script = churn(inUse);
        await script.next();
        await sleep(Math.random() * 120);
        script.child.kill("SIGKILL");
        await script.exited;
        expectSound(inUse);
      }
      await expectNothingLeft(inUse);
      expectSound(inUse);
    },
    patienceMs(60_000),
  );

  test("knows at the next start what a killed process claimed or was about to remove, and leaves the rest its time", async () => {
    const store = inUse.reopen({ graceMs: 600_000 });
    const script = runScript("image-store.mjs", [inUse.stateDirectory, JSON.stringify({ mode: "abandon" })]);
    const { layers } = await script.next<{ layers: LayerId[] }>();
    await store.recover();
    await store.prune({ all: true });
    expect(inUse.engine.layers.list().sort()).toEqual([...layers].sort());
    script.child.kill("SIGKILL");
    await script.exited;
    await store.recover();
    expect(inUse.engine.layers.list()).toEqual([layers[2]]);
    await store.prune({ all: true });
    expect(inUse.engine.layers.list()).toEqual([layers[2]]);
    await expectNothingLeft(inUse);
  });

  test(
    "is sound while others are killed beside one that goes on",
    async () => {
      const survivor = churn(inUse);
      await survivor.next();
      for (let kill = 0; kill < scaled(8, 3); kill++) {
        const victims = [churn(inUse), churn(inUse)];
        await Promise.all(victims.map((script) => script.next()));
        await sleep(Math.random() * 200);
        for (const { child } of victims) child.kill("SIGKILL");
        await Promise.all(victims.map(({ exited }) => exited));
        expect(survivor.child.exitCode).toBeNull();
      }
      survivor.child.kill("SIGKILL");
      await survivor.exited;
      expectSound(inUse);
      await expectNothingLeft(inUse);
    },
    patienceMs(60_000),
  );

  test(
    `keeps what each of ${PROCESSES} processes has made while all of them prune`,
    async () => {
      const base = await inUse.addImage();
      inUse.store.setName({ owner: null, name: "base", tag: "latest" }, base.id);
      const plan = JSON.stringify({ mode: "work", rounds: scaled(6, 2), base: base.id });
      const scripts = Array.from({ length: PROCESSES }, () =>
        runScript("image-store.mjs", [inUse.stateDirectory, plan]),
      );
      const kept = await Promise.all(scripts.map((script) => script.next<{ kept: string[] }>()));
      for (const { exited } of scripts) expect(await exited).toMatchObject({ code: 0 });
      expectSound(inUse);
      const ids = inUse.store.list().map(({ id }) => id as string);
      for (const id of kept.flatMap((each) => each.kept)) expect(ids).toContain(id);
      expect(ids).toContain(base.id);
      await expectNothingLeft(inUse);
      expect(inUse.store.list()).toHaveLength(kept.flatMap((each) => each.kept).length + 1);
    },
    patienceMs(120_000),
  );
});

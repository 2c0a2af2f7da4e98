/** Builds on a host that has little disk: what they have written is no longer free, and they do not wait for it. */
import { execFileSync } from "node:child_process";
import { BubblewrapEngine } from "@holdfast/engine";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createBuilder } from "../../packages/images/src/build/builder.js";
import { assertNoLeaks, type Inventory, takeInventory } from "../helpers/leaks.js";
import { patienceMs } from "../helpers/scale.js";
import { SMALL_LIMITS } from "../helpers/use-engine.js";
import { openTestImages, temporaryDirectory } from "../helpers/use-images.js";
import { expectNothingLeft, imagesContext, localBases, logOf, MIB, recipe, run } from "./build-helper.js";

let before: Inventory;
beforeAll(() => {
  before = takeInventory();
});
afterAll(() => assertNoLeaks(before));

const DISK_MB = 1500;
const BUILDER = { memoryMb: 128, runtimeMemoryMb: 64, network: "off", timeoutS: 30 } as const;

async function onSmallDisk() {
  const stateDirectory = temporaryDirectory();
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${DISK_MB}m`, "tmpfs", stateDirectory]);
  onTestFinished(() => void execFileSync("umount", [stateDirectory]));
  const engine = await BubblewrapEngine.open({ stateDirectory, budget: { reserve: { diskBytes: 16 * MIB } } });
  const inUse = { engine, stateDirectory, ...openTestImages(engine, stateDirectory, { graceMs: 0 }) };
  const tiny = await inUse.addTinyImage();
  inUse.store.setName({ owner: null, name: "tiny", tag: "latest" }, tiny.id);
  const builder = createBuilder(imagesContext(inUse), localBases(inUse));
  onTestFinished(async () => {
    await builder.close();
    await expectNothingLeft(inUse);
    await engine.close({ sandboxes: "kill" });
  });
  return { engine, builder };
}

const fill = (mib: number) => run(`dd if=/dev/urandom of=/file bs=1M count=${mib} 2>/dev/null`);

test("a build that has all of the disk ends although its steps have used some", {
  timeout: patienceMs(120_000),
}, async () => {
  const { builder } = await onSmallDisk();
  const build = await builder.start({ recipe: recipe([fill(60), run("echo more")]), owner: null, builder: BUILDER });
  await build.image;
  expect((await logOf(build)).filter(({ text }) => text.includes("waits"))).toEqual([]);
});

test("a build with a neighbour that keeps most of the disk is tried with what is left", {
  timeout: patienceMs(120_000),
}, async () => {
  const { builder, engine } = await onSmallDisk();
  const { room } = await engine.budget();
  const diskBytes = Math.floor(room.diskBytes * 0.6);
  const neighbour = await engine.create({ limits: { ...SMALL_LIMITS, diskBytes } });
  const start = { command: "dd if=/dev/zero of=/tmp/big bs=1M count=20; sleep 1000" };
  const build = await builder.start({ recipe: recipe([fill(60)], { start }), owner: null, builder: BUILDER });
  await build.image;
  expect((await logOf(build)).filter(({ text }) => text.includes("waits"))).toEqual([]);
  await neighbour.kill("the test");
});

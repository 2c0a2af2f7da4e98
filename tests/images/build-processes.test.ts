/** Several processes build on the same files, and some of them are killed. */
import { mkdtempSync, readdirSync, rmSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { BubblewrapEngine } from "@holdfast/engine";
import type { Builder, BuildId, BuildLogEntry } from "@holdfast/images";
import type { RecipeStep } from "@holdfast/recipe";
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { createBuilder } from "../../packages/images/src/build/builder.js";
import { runScript, type ScriptProcess } from "../helpers/built-engine.js";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { forgiveZombies } from "../helpers/processes.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { buildImages, openTestImages, type TestImages } from "../helpers/use-images.js";
import { expectNothingLeft, imagesContext, localBases, logOf, recipe, run, SMALL_BUILDER } from "./build-helper.js";

const SCRIPT = "../images/build-process.mjs";
const RANDOM = run("cat /proc/sys/kernel/random/uuid | tee -a /uuid");
const KILLS = scaled(12, 4);

beforeAll(buildImages, patienceMs(120_000));

interface Said {
  readonly build?: BuildId;
  readonly entry?: BuildLogEntry;
  readonly ended?: string;
  readonly image?: string;
  readonly message?: string;
}

describe("builders in several processes", () => {
  const use = {} as TestImages & { engine: BubblewrapEngine; stateDirectory: string; builder: Builder };
  let before: Inventory;
  let children: ScriptProcess[];

  beforeEach(async () => {
    before = takeInventory();
    children = [];
    const stateDirectory = mkdtempSync(OUR_DIRECTORIES);
    const engine = await BubblewrapEngine.open({ stateDirectory });
    const images = openTestImages(engine, stateDirectory, { graceMs: 0 });
    const parts = { engine, stateDirectory, store: images.store };
    const builder = createBuilder(imagesContext(parts), localBases(images));
    Object.assign(use, images, { engine, stateDirectory, builder });
    const tiny = await use.addTinyImage();
    use.store.setName({ owner: null, name: "tiny", tag: "latest" }, tiny.id);
  }, patienceMs(30_000));

  afterEach(async () => {
    for (const { child } of children) child.kill("SIGKILL");
    await Promise.all(children.map(({ exited }) => exited));
    await use.builder.close();
    // What the killed have left is found by whoever comes next.
    await use.store.recover();
    await use.builder.recover();
    await use.engine.sweep();
    await expectNothingLeft(use);
    await use.engine.close({ sandboxes: "kill" });
    rmSync(use.stateDirectory, { recursive: true, force: true });
    await assertNoLeaks(forgiveZombies(before));
  }, patienceMs(60_000));

  const requestOf = (steps: readonly RecipeStep[]) => ({ recipe: recipe(steps), owner: null, builder: SMALL_BUILDER });

  function spawnBuild(steps: readonly RecipeStep[]): ScriptProcess {
    const child = runScript(SCRIPT, [use.stateDirectory, JSON.stringify({ request: requestOf(steps) })]);
    children.push(child);
    return child;
  }

  async function until(child: ScriptProcess, isIt: (said: Said) => boolean): Promise<Said[]> {
    const all: Said[] = [];
    for (;;) {
      const said = await child.next<Said>();
      all.push(said);
      if (isIt(said)) return all;
    }
  }

  const untilText = (child: ScriptProcess, text: string) => until(child, ({ entry }) => entry?.text === text);
  const untilEnd = (child: ScriptProcess) => until(child, ({ ended }) => ended !== undefined);
  const textsOf = (said: readonly Said[]) => said.flatMap(({ entry }) => entry?.text ?? []);

  it("share one build, and each gets its whole log as it comes", { timeout: patienceMs(60_000) }, async () => {
    const steps = [run("echo begun; sleep 2; echo later"), RANDOM];
    const leader = spawnBuild(steps);
    const first = await untilText(leader, "begun");
    const follower = spawnBuild(steps);
    const here = await use.builder.start(requestOf(steps));
    const seen: { text: string; lateMs: number }[] = [];
    for await (const { text, at } of here.log()) seen.push({ text, lateMs: Date.now() - Date.parse(at) });
    const rest = await untilEnd(leader);
    const others = await untilEnd(follower);
    const image = await here.image;
    expect(rest.at(-1)).toMatchObject({ ended: "ready", image: image.id });
    expect(others.at(-1)).toMatchObject({ ended: "ready", image: image.id });
    expect(textsOf(others)).toEqual(textsOf([...first, ...rest]));
    expect(seen.map(({ text }) => text)).toEqual(textsOf(others));
    // Flushed within 100 ms, looked for every 200 ms, and a machine that has other things to do.
    expect(seen.find(({ text }) => text === "later")?.lateMs).toBeLessThan(patienceMs(1000));
  });

  it("take up what a killed one has left, from where it was", { timeout: patienceMs(90_000) }, async () => {
    const steps = [RANDOM, run("echo begun; sleep 3; echo over >/over")];
    const killed = spawnBuild(steps);
    const said = await untilText(killed, "begun");
    // One waits for it already, one comes later.
    const waiting = await use.builder.start(requestOf(steps));
    for await (const { text } of waiting.log()) if (text === "begun") break;
    killed.child.kill("SIGKILL");
    await killed.exited;
    const late = spawnBuild(steps);
    const [image, end] = [await waiting.image, (await untilEnd(late)).at(-1)];
    expect(end).toMatchObject({ ended: "ready", image: image.id });
    const log = await logOf(waiting);
    expect(log.map(({ text }) => text)).toEqual(expect.arrayContaining(textsOf(said)));
    // Found, not run again; and numbered on over both builds.
    expect(log.filter(({ text }) => /^[0-9a-f-]{36}$/.test(text))).toHaveLength(1);
    expect(log.map(({ text }) => text)).toContain("RUN cat /proc/sys/kernel/random/uuid | tee -a /uuid (cached)");
    expect(log.map(({ seq }) => seq)).toEqual(log.map((_, index) => index));
    const dead = said[0]?.build as BuildId;
    expect(use.builder.get(dead)?.info()).toMatchObject({ state: "failed", failure: { cause: { kind: "lost" } } });
    await expect(use.builder.get(dead)?.image).rejects.toMatchObject({ code: "build_failed" });
  });

  it("leave nothing behind, whenever they are killed", { timeout: patienceMs(180_000) }, async () => {
    const steps = [RANDOM, RANDOM, RANDOM, RANDOM, RANDOM, RANDOM];
    for (let round = 0; round < KILLS; round++) {
      const child = spawnBuild(steps);
      const { build } = await child.next<Said>();
      await new Promise((resolve) => setTimeout(resolve, 50 + Math.random() * 400));
      child.child.kill("SIGKILL");
      await child.exited;
      await use.builder.recover();
      const info = use.builder.get(build as BuildId)?.info();
      expect(["failed", "ready", undefined]).toContain(info?.state);
      expect(readdirSync(join(use.store.directory, "builds", "by-hash"))).toEqual([]);
    }
    const build = await use.builder.start(requestOf(steps));
    const made = await build.image;
    expect(made.layers.length).toBe(7);
  });

  it("do not wait for one that stands still, and it gives way", { timeout: patienceMs(60_000) }, async () => {
    const steps = [RANDOM, run("echo begun; sleep 4")];
    const stuck = spawnBuild(steps);
    const [first] = await untilText(stuck, "begun");
    stuck.child.kill("SIGSTOP");
    const longAgo = new Date(Date.now() - 60_000);
    utimesSync(join(use.store.directory, "builds", first?.build ?? "", "lease.json"), longAgo, longAgo);
    const here = await use.builder.start(requestOf(steps));
    for await (const { text } of here.log()) if (text === "begun") break;
    stuck.child.kill("SIGCONT");
    expect((await untilEnd(stuck)).at(-1)).toMatchObject({ ended: "build_failed" });
    expect(await here.image).toMatchObject({ kind: "built", buildId: here.id });
    expect(use.builder.get(first?.build as BuildId)?.info()).toMatchObject({ failure: { cause: { kind: "lost" } } });
  });

  it("cancel what another one runs, by its id", { timeout: patienceMs(60_000) }, async () => {
    const steps = [run("echo begun; sleep 1000")];
    const child = spawnBuild(steps);
    const [first] = await untilText(child, "begun");
    const found = use.builder.get(first?.build as BuildId);
    expect(found?.info()).toMatchObject({ state: "building" });
    await found?.cancel("another process");
    expect((await untilEnd(child)).at(-1)).toMatchObject({ ended: "canceled", message: "canceled by another process" });
    await vi.waitFor(() => expect(found?.info().state).toBe("canceled"));
  });

  it("go on for those of other processes when their own have left", { timeout: patienceMs(60_000) }, async () => {
    const steps = [run("echo begun; sleep 2"), RANDOM];
    const leader = spawnBuild(steps);
    await untilText(leader, "begun");
    const here = await use.builder.start(requestOf(steps));
    for await (const { text } of here.log()) if (text === "begun") break;
    leader.child.stdin?.write("cancel\n");
    expect((await untilEnd(leader)).at(-1)).toMatchObject({ ended: "canceled" });
    // Its process goes too, and the build is taken up here.
    await leader.exited;
    expect(await here.image).toMatchObject({ kind: "built" });
  });
});

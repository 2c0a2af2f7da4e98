/** What is done once is not done again, and what is wanted by many is done once. */
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Build, BuildId, BuildLogEntry } from "@holdfast/images";
import { describe, expect, it, vi } from "vitest";
import { createBuildId } from "../../packages/images/src/store/ids.js";
import { DEFAULT_FLOOR_BYTES } from "../helpers/needs-host.js";
import { patienceMs } from "../helpers/scale.js";
import { logOf, MIB, outputOf, recipe, run, SMALL_BUILDER, useBuilds } from "./build-helper.js";

/** Another text every time that it is really run. */
const RANDOM = run("cat /proc/sys/kernel/random/uuid | tee /uuid");
const statesOf = (build: Build) => build.info().steps.map(({ state }) => state);

describe("a builder", () => {
  const use = useBuilds();

  it("runs again from the step that was changed, and no step before it", async () => {
    const first = await use.start([RANDOM, run("echo one >/file"), RANDOM]);
    await first.image;
    const second = await use.start([RANDOM, run("echo two >/file"), RANDOM]);
    const image = await second.image;
    expect(statesOf(second)).toEqual(["done", "cached", "done", "done", "done"]);
    const [uuid = ""] = await outputOf(first);
    expect(await outputOf(second)).toHaveLength(1);
    expect((await logOf(second)).map(({ text }) => text)).toContain(
      "RUN cat /proc/sys/kernel/random/uuid | tee /uuid (cached)",
    );
    expect((await use.inside(image, "cat /file /uuid")).stdout).toBe(`two\n${(await outputOf(second))[0]}\n`);
    expect(uuid).not.toBe((await outputOf(second))[0]);
  });

  it("remembers what went well before a failure, and forgets the failure", async () => {
    const failing = await use.start([RANDOM, run("echo about to fail; exit 3")]);
    const error = await failing.image.catch((reason: unknown) => reason);
    expect(error).toMatchObject({
      code: "build_failed",
      message: "step 2 (RUN echo about to fail; exit 3) failed: exited with code 3.",
      details: { step: "2", cause: { kind: "exited", code: 3 }, suggestedMemoryMb: null },
    });
    const { tail } = (error as { details: { tail: BuildLogEntry[] } }).details;
    expect(tail.map(({ text }) => text)).toContain("about to fail");
    expect(failing.info()).toMatchObject({ state: "failed", imageId: null, failure: { step: "2" } });
    expect(statesOf(failing)).toEqual(["done", "done", "failed", "waiting"]);

    const again = await use.start([RANDOM, run("echo about to fail; exit 3")]);
    await expect(again.image).rejects.toMatchObject({ code: "build_failed" });
    expect(statesOf(again)).toEqual(["done", "cached", "failed", "waiting"]);

    const mended = await use.start([RANDOM, run("echo mended")]);
    const image = await mended.image;
    expect(statesOf(mended)).toEqual(["done", "cached", "done", "done"]);
    const hit = await use.start([RANDOM, run("echo mended")]);
    expect((await hit.image).id).toBe(image.id);
    expect(hit.info()).toMatchObject({ state: "ready", cached: true });
  });

  it("is done at once if the image is there, and says so in one line", async () => {
    const image = await use.build([RANDOM]);
    const names = [{ owner: null, name: "team/app", tag: "v1" }];
    const build = await use.start([RANDOM], { names });
    expect(await build.image).toEqual(image);
    expect((await logOf(build)).map(({ text }) => text)).toEqual([`the image is there: ${image.id}`]);
    expect(statesOf(build)).toEqual(["done", "cached", "cached"]);
    expect(use.store.require("team/app:v1", null).id).toBe(image.id);
    // Nothing of it is left on the disk, and it can be asked for all the same.
    expect(existsSync(join(use.store.directory, "builds", build.id))).toBe(false);
    expect(use.builder.get(build.id)?.info()).toMatchObject({ id: build.id, cached: true });
  });

  it("makes one build of fifty, and everybody gets the whole log", { timeout: patienceMs(60_000) }, async () => {
    const other = use.open();
    const request = { recipe: recipe([run("sleep 1"), RANDOM]), owner: null, builder: SMALL_BUILDER };
    const builds = await Promise.all(
      Array.from({ length: 50 }, async (_, index) => {
        if (index > 40) await sleep(20 * index);
        return (index % 2 === 0 ? use.builder : other).start(request);
      }),
    );
    const images = await Promise.all(builds.map(({ image }) => image));
    expect(new Set(images.map(({ id }) => id)).size).toBe(1);
    const logs = await Promise.all(builds.map(logOf));
    const [first] = logs;
    expect(first?.filter(({ stream }) => stream === "stdout")).toHaveLength(1);
    for (const log of logs) {
      expect(log.map(({ text }) => text)).toEqual(first?.map(({ text }) => text));
      expect(log.map(({ seq }) => seq)).toEqual(log.map((_, index) => index));
    }
    expect(new Set(builds.map(({ id }) => id)).size).toBe(50);
    expect(builds.every((build) => build.info().state === "ready")).toBe(true);
  });

  it("gives a log live, and from anywhere afterwards", async () => {
    const build = await use.start([run("echo one; sleep 1; echo two")]);
    const seen: { text: string; at: number }[] = [];
    for await (const { text, stream } of build.log()) {
      if (stream === "stdout") seen.push({ text, at: Date.now() });
    }
    const [one, two] = seen;
    expect([one?.text, two?.text]).toEqual(["one", "two"]);
    expect((two?.at ?? 0) - (one?.at ?? 0)).toBeGreaterThan(700);
    const whole = await logOf(build);
    const late = use.open().get(build.id);
    const part: BuildLogEntry[] = [];
    for await (const entry of late?.log({ from: 2 }) ?? []) part.push(entry);
    expect(part).toEqual(whole.slice(2));
    expect(await late?.image).toEqual(await build.image);
    expect(late?.info()).toEqual(build.info());
    const stop = new AbortController();
    const stopped = await use.start([run("echo x; sleep 5")]);
    for await (const { text } of stopped.log({ signal: stop.signal })) if (text === "x") stop.abort();
    await stopped.cancel("the test");
  });

  it("runs steps again if it is told to, and the image takes the place of the old one", async () => {
    const names = [{ owner: null, name: "app", tag: "latest" }];
    const steps = [RANDOM, RANDOM, run("cp /uuid /copy")];
    const first = await use.start(steps, { names });
    const before = await first.image;
    const second = await use.start(steps, { names, forceFrom: 1 });
    const after = await second.image;
    expect(statesOf(second)).toEqual(["done", "cached", "done", "done", "done"]);
    expect(after.id).toBe(before.id);
    expect(use.store.require("app", null).layers).toEqual(after.layers);
    expect((await use.inside(after, "cat /copy")).stdout.trim()).toBe((await outputOf(second))[0]);
    const all = await use.start(steps, { forceFrom: 0 });
    await all.image;
    expect(statesOf(all)).toEqual(["done", "done", "done", "done", "done"]);
  });

  it("finds only the floor anew if only the floor is another", async () => {
    const image = await use.build([RANDOM]);
    const build = await use.start([RANDOM], { builder: { ...SMALL_BUILDER, runtimeMemoryMb: 32 } });
    expect(await build.image).toEqual({ ...image, floor: { ...image.floor, memoryBytes: 32 * MIB } });
    expect(statesOf(build)).toEqual(["done", "cached", "done"]);
    expect(use.store.get(image.id)?.floor?.memoryBytes).toBe(32 * MIB);
    const { runtimeMemoryMb: _, ...unasked } = SMALL_BUILDER;
    const any = await use.start([RANDOM], { builder: unasked });
    await any.image;
    expect(any.info().cached).toBe(true);
  });

  it("gives each owner an image of their own, of the same layers", async () => {
    const [one, other] = await Promise.all([
      use.start([run("sleep 0.5"), RANDOM], { owner: "key1", names: [{ owner: "key1", name: "app", tag: "latest" }] }),
      use.start([run("sleep 0.5"), RANDOM], { owner: "key2", names: [{ owner: "key2", name: "app", tag: "latest" }] }),
    ]);
    const [first, second] = await Promise.all([one.image, other.image]);
    expect(await outputOf(one)).toEqual(await outputOf(other));
    expect([first.owner, second.owner]).toEqual(["key1", "key2"]);
    expect(first.layers).toEqual(second.layers);
    expect(use.store.require("app", "key2").id).toBe(second.id);
    expect(use.builder.list({ owner: "key2" }).map(({ id }) => id)).toEqual([other.id]);
  });

  it("shows an owner their own builds, and not the operator's", async () => {
    await use.build([RANDOM]);
    const own = await use.start([run("false")], { owner: "key1" });
    await expect(own.image).rejects.toMatchObject({ code: "build_failed" });
    expect(use.builder.list({ owner: "key1" }).map(({ id }) => id)).toEqual([own.id]);
    expect(use.builder.list({ owner: "key2" })).toEqual([]);
    expect(use.builder.list()).toHaveLength(2);
  });

  it("gives a key the operator's steps and its own, and no other key's", async () => {
    const states = async (owner: string | null): Promise<string[]> => {
      const build = await use.start([RANDOM], { owner });
      await build.image;
      return build.info().steps.map(({ state }) => state);
    };
    await use.build([RANDOM, run("false")], { owner: "key1" }).catch(() => {});
    expect(await states("key2")).toEqual(["done", "done", "done"]);
    expect(await states("key1")).toEqual(["done", "cached", "done"]);
    await use.build([RANDOM, run("true")]);
    expect(await states("key3")).toEqual(["done", "cached", "done"]);
  });

  it("neither joins nor waits for the build of another key that has less", {
    timeout: patienceMs(60_000),
  }, async () => {
    const builder = use.open({ parallel: 4 });
    const steps = [run("i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done"), RANDOM];
    const start = (owner: string | null, cpus: number) =>
      builder.start({ recipe: recipe(steps), owner, builder: { ...SMALL_BUILDER, cpus } });
    const poor = await start("key1", 0.01);
    const own = ["key2", "key2", null].map((owner) => start(owner, 1));
    const [first, second, operators] = await Promise.all((await Promise.all(own)).map(({ image }) => image));
    expect(poor.info().state).toBe("building");
    expect(first?.id).toBe(second?.id);
    expect(operators?.owner).toBe(null);
    const other = await poor.image;
    expect([first?.layers[0], operators?.layers[0]]).not.toContain(other.layers[0]);
  });

  it("gives an image of its own to whoever wants other limits, on the same layers", async () => {
    const limits = { memoryBytes: 512 * MIB, cpuMillis: 1000 };
    const names = [{ owner: null, name: "one", tag: "latest" }];
    const first = await use.build([RANDOM], { limits, names });
    const other = await use.build([RANDOM], { limits: { ...limits, cpuMillis: 2000 } });
    expect(other).toMatchObject({ layers: first.layers, limits: { cpuMillis: 2000 }, digest: first.digest });
    expect(use.store.require("one", null)).toEqual(first);
    expect((await use.build([RANDOM], { limits })).id).toBe(first.id);
    expect((await use.build([RANDOM], { limits: { ...limits, cpuMillis: 2000 } })).id).toBe(other.id);
    const higher = { limits: { ...limits, cpuMillis: 3000 }, builder: { ...SMALL_BUILDER, runtimeMemoryMb: 128 } };
    expect((await use.build([RANDOM], higher)).floor?.memoryBytes).toBe(128 * MIB);
    expect(use.store.get(first.id)).toEqual(first);
    const [one, two] = await Promise.all(
      [1000, 2000].map((cpuMillis) => use.build([run("sleep 1"), RANDOM], { limits: { cpuMillis } })),
    );
    expect([one?.limits, two?.limits]).toEqual([{ cpuMillis: 1000 }, { cpuMillis: 2000 }]);
    expect(one?.layers).toEqual(two?.layers);
  });

  it("gives no higher floor than the default to whoever asks for none", { timeout: patienceMs(60_000) }, async () => {
    const { runtimeMemoryMb: _, ...builder } = SMALL_BUILDER;
    const image = await use.build([RANDOM], { builder: { ...builder, runtimeMemoryMb: 1100 } });
    expect(image.floor?.memoryBytes).toBe(1100 * MIB);
    expect((await use.build([RANDOM], { builder })).floor?.memoryBytes).toBe(DEFAULT_FLOOR_BYTES);
  });

  it("runs again what stands on a stage that had to be run again", async () => {
    const { base } = recipe([]);
    const whole = recipe([run("cp /uuid /copy")], {
      base: { kind: "stage", index: 0 },
      stages: [{ base, steps: [RANDOM] }],
    });
    const first = await use.build([], { recipe: whole });
    const steps = join(use.store.directory, "steps");
    const lost = first.layers[1] as string;
    for (const name of readdirSync(steps)) {
      if (readFileSync(join(steps, name), "utf8").includes(lost)) rmSync(join(steps, name));
    }
    await use.store.remove(first.id);
    const image = await use.build([], { recipe: whole });
    expect((await use.inside(image, "cmp /uuid /copy && echo same")).stdout).toBe("same\n");
  });

  it("keeps a promised id, and takes it once", async () => {
    const id = createBuildId();
    const build = await use.start([RANDOM], { id });
    expect(build.id).toBe(id);
    expect(use.open().get(id)?.info()).toMatchObject({ id, state: expect.stringMatching(/building|waiting/) });
    await expect(use.start([RANDOM], { id })).rejects.toMatchObject({ code: "invalid_argument" });
    await build.image;
    const cached = await use.start([RANDOM], { id: createBuildId() });
    await cached.image;
    expect(use.open().get(cached.id)?.info()).toMatchObject({ state: "ready", cached: true });
    expect(await logOf(use.open().get(cached.id) as Build)).toHaveLength(1);
    expect(use.builder.get("b0000000000000000000x" as BuildId)).toBeUndefined();
    expect(use.builder.get("../../etc" as BuildId)).toBeUndefined();
  });

  it.each([
    [
      "more memory than there is",
      { builder: { memoryMb: 2 ** 29 } },
      /builder\.memoryMb: 536870912 MiB were asked for, and this host has \d+ MiB/,
    ],
    ["a floor that is no number", { builder: { runtimeMemoryMb: "1g" } }, /builder\.runtimeMemoryMb/],
    ["a bad name", { names: [{ owner: null, name: "No Name", tag: "x" }] }, /names\[0\]\.name/],
    ["a bad id", { id: "../x" }, /^id: /],
    ["a negative step", { forceFrom: -1 }, /forceFrom/],
    ["nonsense for limits", { limits: { memoryBytes: -5 } }, /limits\.memoryBytes/],
  ])("refuses %s before anything runs", async (_what, request, message) => {
    await expect(use.start([RANDOM], request as object)).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringMatching(message),
    });
    expect(use.builder.list()).toEqual([]);
  });

  it("refuses a recipe whose files are not here, and names them", async () => {
    const missing = `sha256:${"0".repeat(64)}` as const;
    await expect(use.start([{ kind: "copy", tree: missing, to: "/x" }])).rejects.toMatchObject({
      code: "invalid_argument",
      details: { missing: [missing] },
    });
    const tree = await use.addTree({ a: "here" });
    const [file] = (
      JSON.parse(readFileSync(use.store.blobs.path(tree), "utf8")) as { entries: { digest: `sha256:${string}` }[] }
    ).entries;
    rmSync(use.store.blobs.path(file?.digest ?? missing));
    await expect(use.start([{ kind: "copy", tree, to: "/x" }])).rejects.toMatchObject({
      details: { missing: [file?.digest] },
    });
  });

  it("refuses more files than can be listed in a moment", async () => {
    const tree = await use.addBlob(Buffer.alloc(65 * MIB, " "));
    const copy = (to: string, digest = tree) => ({ kind: "copy", tree: digest, to }) as const;
    await expect(use.start([copy("/a")])).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringMatching(/^recipe: the manifest sha256:\w+ came to 65 MiB, more than 64 MiB$/),
    });
    const others = await Promise.all([1, 2, 3].map((byte) => use.addBlob(Buffer.alloc(50 * MIB, byte))));
    await expect(use.start(others.map((digest) => copy("/b", digest)))).rejects.toMatchObject({
      message: "recipe: the manifests of the recipe's files came to 150 MiB, more than 128 MiB",
    });
  });

  it("says what is wrong with a base that is not there", async () => {
    const build = await use.start([], { recipe: recipe([], { base: { kind: "image", name: "nothing" } }) });
    await expect(build.image).rejects.toMatchObject({ code: "build_failed", details: { step: "base" } });
    expect(build.info().state).toBe("failed");
  });

  it("goes on for as long as anybody waits, and ends when nobody does", async () => {
    const steps = [run("echo begun; sleep 2; echo over"), RANDOM];
    const one = await use.start(steps);
    const other = await use.start(steps);
    for await (const { text } of one.log()) if (text === "begun") break;
    await one.cancel("somebody");
    await expect(one.image).rejects.toMatchObject({ code: "canceled" });
    expect(await other.image).toMatchObject({ kind: "built" });

    const long = [run("echo begun; sleep 1000")];
    const [first, second] = [await use.start(long), await use.start(long)];
    for await (const { text } of second.log()) if (text === "begun") break;
    expect(use.engine.list()).toHaveLength(1);
    await Promise.all([first.cancel("one"), second.cancel("the other")]);
    await expect(first.image).rejects.toMatchObject({ code: "canceled" });
    await expect(second.image).rejects.toMatchObject({ code: "canceled" });
    expect(use.engine.list()).toEqual([]);
    expect(
      use.builder
        .list()
        .map(({ state }) => state)
        .slice(0, 2),
    ).toEqual(["canceled", "canceled"]);
    // By its id, from elsewhere.
    const third = await use.start(long);
    for await (const { text } of third.log()) if (text === "begun") break;
    await use.open().get(third.id)?.cancel("a second process");
    await expect(third.image).rejects.toMatchObject({ code: "canceled", message: "canceled by a second process" });
  });

  it("ends all that it does when it is closed, and takes on no more", async () => {
    const builder = use.open();
    const build = await builder.start({
      recipe: recipe([run("echo begun; sleep 1000")]),
      owner: null,
      builder: SMALL_BUILDER,
    });
    for await (const { text } of build.log()) if (text === "begun") break;
    const joined = await use.start([run("echo begun; sleep 1000")]);
    for await (const { text } of joined.log()) if (text === "begun") break;
    await builder.close();
    await expect(build.image).rejects.toMatchObject({ code: "canceled" });
    await expect(builder.start({ recipe: recipe([]), owner: null })).rejects.toMatchObject({ code: "server_stopping" });
    // Who had joined it goes on by itself.
    for await (const { text, seq } of joined.log()) if (text === "begun" && seq > 3) break;
    await joined.cancel("the test");
  });
});

describe("a builder for one build at a time", () => {
  const use = useBuilds({ parallel: 1 });

  it("lets the others wait, in order", async () => {
    const started: string[] = [];
    const builds: Build[] = [];
    for (const [index, name] of ["a", "b", "c"].entries()) {
      const build = await use.start([run(`echo ${name}; sleep 1`)]);
      builds.push(build);
      const state = index === 0 ? "building" : "waiting";
      await vi.waitFor(() => expect(build.info()).toMatchObject({ state, digest: expect.any(String) }));
    }
    const gone = await use.start([run("echo gone")]);
    await gone.cancel("the test");
    await Promise.all(
      builds.map(async (build) => {
        for await (const { text, stream } of build.log()) if (stream === "stdout") started.push(text);
        await build.image;
      }),
    );
    expect(started).toEqual(["a", "b", "c"]);
  });
});

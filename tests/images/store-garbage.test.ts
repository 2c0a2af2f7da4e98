import { existsSync, mkdirSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createLayerId, type LayerId } from "@holdfast/engine";
import type { ImageRecord } from "@holdfast/images";
import type { Digest } from "@holdfast/recipe";
import { describe, expect, test } from "vitest";
import {
  claimImage,
  claimLayer,
  isGoing,
  markGoing,
  releaseClaims,
  unmarkGoing,
} from "../../packages/images/src/store/claims.js";
import { createBuildId } from "../../packages/images/src/store/ids.js";
import { shell } from "../helpers/use-engine.js";
import { imageRecord, useImages } from "../helpers/use-images.js";

const digest = (digits: string): Digest => `sha256:${digits.padEnd(64, "0")}`;
const code = (value: string) => expect.objectContaining({ code: value });
const DAY_MS = 24 * 3600_000;

function age(path: string, byMs: number): void {
  const then = (Date.now() - byMs) / 1000;
  utimesSync(path, then, then);
}

function only(layers: readonly LayerId[]): LayerId {
  const [layer] = layers;
  if (layer === undefined) throw new Error("no layer");
  return layer;
}

describe.each(["dir", "btrfs"] as const)("removing an image on %s", (pool) => {
  const inUse = useImages({ pool });

  test("takes its names and its layers with it, and says what that freed", async () => {
    const record = await inUse.addImage({
      layers: [await inUse.addLayer((directory) => writeFileSync(join(directory, "big"), Buffer.alloc(1024 * 1024)))],
    });
    inUse.store.setName({ owner: null, name: "a", tag: "1" }, record.id);
    inUse.store.setName({ owner: "k1", name: "b", tag: "2" }, record.id);
    const report = await inUse.store.remove(record.id);
    expect(report).toMatchObject({ images: [record.id], layers: record.layers });
    expect(report.freedBytes).toBeGreaterThanOrEqual(1024 * 1024);
    expect(inUse.engine.layers.list()).toEqual([]);
    expect(inUse.store.names()).toEqual([]);
    for (const directory of ["records", "names", "layers", "going", "claims", "tmp"]) {
      expect(readdirSync(join(inUse.store.directory, directory))).toEqual([]);
    }
    await expect(inUse.store.remove(record.id)).rejects.toThrow(code("image_not_found"));
  });

  test("leaves layers that another image or a cached step stands on", async () => {
    const base = await inUse.addImage();
    const step = await inUse.addLayer();
    const top = await inUse.addLayer();
    const app = await inUse.addImage({ layers: [top, step, ...base.layers], parent: base.id });
    inUse.store.cacheStep(digest("1"), step);
    expect((await inUse.store.remove(app.id)).layers).toEqual([top]);
    expect(inUse.engine.layers.list().sort()).toEqual([step, ...base.layers].sort());
    expect(inUse.store.missingLayers(base)).toEqual([]);
  });

  test("is refused while an image that was made on it is there", async () => {
    const base = await inUse.addImage();
    const app = await inUse.addImage({ layers: base.layers, parent: base.id });
    await expect(inUse.store.remove(base.id)).rejects.toThrow(
      expect.objectContaining({ code: "image_in_use", details: expect.objectContaining({ images: [app.id] }) }),
    );
    expect(inUse.store.get(base.id)).toEqual(base);
    await inUse.store.remove(app.id);
    await inUse.store.remove(base.id);
    expect(inUse.engine.layers.list()).toEqual([]);
  });

  test("is refused while a sandbox stands on it, running or stopped, unless another image has the same layers", async () => {
    const record = await inUse.addTinyImage();
    const sandbox = await inUse.create({ image: { kind: "layers", layers: record.layers } });
    expect((await shell(sandbox, "id -un user; cat /etc/group | wc -l")).stdout).toBe("user\n2\n");
    const refused = expect.objectContaining({
      code: "image_in_use",
      details: expect.objectContaining({ sandboxes: [sandbox.id] }),
    });
    await expect(inUse.store.remove(record.id)).rejects.toThrow(refused);
    await sandbox.stop("a test");
    await expect(inUse.store.remove(record.id)).rejects.toThrow(refused);
    const twin = await inUse.addImage({ layers: record.layers });
    expect(await inUse.store.remove(record.id)).toMatchObject({ images: [record.id], layers: [] });
    await expect(inUse.store.remove(twin.id)).rejects.toThrow(refused);
    await inUse.engine.discard(sandbox.id);
    expect((await inUse.store.remove(twin.id)).layers).toEqual(record.layers);
  });

  test("is refused while a build needs it", async () => {
    const record = await inUse.addImage();
    const build = createBuildId();
    claimImage({ directory: inUse.store.directory, layers: inUse.engine.layers, holder: build, record });
    await expect(inUse.store.remove(record.id)).rejects.toThrow(
      expect.objectContaining({ code: "image_in_use", details: expect.objectContaining({ builds: [build] }) }),
    );
    releaseClaims(inUse.store.directory, build);
    await inUse.store.remove(record.id);
  });

  test("removes its build's log with it, unless another image came of the same build", async () => {
    const buildId = createBuildId();
    const log = join(inUse.store.directory, "builds", buildId);
    mkdirSync(log);
    writeFileSync(join(log, "log.ndjson"), "x".repeat(1000));
    const one = await inUse.addImage({ buildId });
    const two = await inUse.addImage({ buildId });
    expect((await inUse.store.remove(one.id)).builds).toBe(0);
    expect(await inUse.store.remove(two.id)).toMatchObject({ builds: 1 });
    expect(existsSync(log)).toBe(false);
  });
});

describe("claims", () => {
  const inUse = useImages({ pool: "dir", store: { graceMs: 0 } });

  test("keep a layer that no record names until they are released", async () => {
    const build = createBuildId();
    const layer = createLayerId();
    expect(claimLayer(inUse.store.directory, build, layer)).toBe(true);
    await (await inUse.engine.layers.draft(layer)).commit();
    expect((await inUse.store.prune({ all: true })).layers).toEqual([]);
    releaseClaims(inUse.store.directory, build);
    expect((await inUse.store.prune()).layers).toEqual([layer]);
  });

  test("fail for what is just being removed", async () => {
    const record = await inUse.addImage();
    const { directory } = inUse.store;
    markGoing(directory, record.layers);
    expect(claimLayer(directory, "importer", only(record.layers))).toBe(false);
    expect(() => claimImage({ directory, layers: inUse.engine.layers, holder: "importer", record })).toThrow(
      code("image_not_found"),
    );
    expect(() => inUse.store.put(imageRecord({ layers: record.layers }))).toThrow(code("image_in_use"));

    unmarkGoing(directory, only(record.layers));
    expect(isGoing(directory, only(record.layers))).toBe(false);
    expect(claimLayer(directory, "importer", only(record.layers))).toBe(true);
    releaseClaims(directory, "importer");
  });

  test.each(["", "..", "a/b", "A"])("of a holder called %j are refused", (holder) => {
    expect(() => claimLayer(inUse.store.directory, holder, createLayerId())).toThrow(code("invalid_argument"));
  });
});

describe.each(["dir", "btrfs"] as const)("pruning on %s", (pool) => {
  const inUse = useImages({ pool, store: { graceMs: 0 } });

  test("leaves young layers alone that nobody names yet, and takes old ones", async () => {
    const layer = await inUse.addLayer();
    expect((await inUse.reopen({ graceMs: 60_000 }).prune()).layers).toEqual([]);
    expect((await inUse.store.prune()).layers).toEqual([layer]);
    expect(await inUse.store.prune()).toEqual({ images: [], layers: [], blobs: 0, builds: 0, freedBytes: 0 });
  });

  test("takes cached steps that nobody has used for long, or all of them", async () => {
    const [old, young] = [await inUse.addLayer(), await inUse.addLayer()];
    inUse.store.cacheStep(digest("1"), old);
    inUse.store.cacheStep(digest("2"), young);
    const path = join(inUse.store.directory, "steps", "1".padEnd(64, "0"));
    age(path, 13 * DAY_MS);
    expect((await inUse.store.prune()).layers).toEqual([]);
    age(path, 15 * DAY_MS);
    expect(inUse.store.cachedStep(digest("1"))).toBe(old);
    expect((await inUse.store.prune()).layers).toEqual([]);
    age(path, 15 * DAY_MS);
    expect((await inUse.store.prune()).layers).toEqual([old]);
    expect((await inUse.store.prune({ all: true, unusedForMs: DAY_MS })).layers).toEqual([]);
    expect((await inUse.store.prune({ all: true })).layers).toEqual([young]);
  });

  test("takes images without a name only with `all`, and never what is in use", async () => {
    const tiny = await inUse.addTinyImage();
    const snapshot = await inUse.addImage({ kind: "snapshot", layers: tiny.layers, disk: await inUse.addLayer() });
    const parent = await inUse.addImage();
    const child = await inUse.addImage({ layers: [await inUse.addLayer(), ...parent.layers], parent: parent.id });
    inUse.store.setName({ owner: null, name: "child", tag: "latest" }, child.id);
    const lone = await inUse.addImage();
    const sandbox = await inUse.create({ image: { kind: "layers", layers: tiny.layers } });
    expect((await inUse.store.prune()).images).toEqual([]);
    expect((await inUse.store.prune({ all: true, unusedForMs: DAY_MS })).images).toEqual([]);
    const report = await inUse.store.prune({ all: true });
    expect([...report.layers].sort()).toEqual([snapshot.disk as LayerId, ...lone.layers].sort());
    const left = inUse.store.list().map(({ id }) => id);
    expect(left).toContain(child.id);
    expect(left).toContain(parent.id);
    expect(left).toHaveLength(3);
    expect((await shell(sandbox, "ls /bin/busybox")).stdout).toBe("/bin/busybox\n");
    await sandbox.kill("a test");
    expect((await inUse.store.prune({ all: true })).layers).toEqual(tiny.layers);
    expect(await inUse.store.prune({ all: true })).toMatchObject({ images: [], layers: [] });
  });

  test("leaves a layer alone that only a sandbox needs, and takes it afterwards", async () => {
    const layer = only((await inUse.addTinyImage()).layers);
    const sandbox = await inUse.create({ image: { kind: "layers", layers: [layer] } });
    const [record] = inUse.store.list();
    rmSync(join(inUse.store.directory, "records", `${(record as ImageRecord).id}.json`));
    expect((await inUse.store.prune({ all: true })).layers).toEqual([]);
    await sandbox.kill("a test");
    expect((await inUse.store.prune({ all: true })).layers).toEqual([layer]);
  });

  test("takes blobs and finished builds that nobody has used for long", async () => {
    const blob = await inUse.store.blobs.add(chunks("content"));
    const path = inUse.store.blobs.path(blob.digest);
    const kept = createBuildId();
    const record = await inUse.addImage({ buildId: kept });
    inUse.store.setName({ owner: null, name: "app", tag: "latest" }, record.id);
    const builds = [kept, createBuildId()].map((id) => join(inUse.store.directory, "builds", id));
    for (const build of builds) {
      mkdirSync(build);
      writeFileSync(join(build, "info.json"), "{}");
    }
    const ageAll = (byMs: number) => {
      for (const file of [path, ...builds.flatMap((build) => [join(build, "info.json"), build])]) age(file, byMs);
    };
    expect(await inUse.store.prune({ all: true, unusedForMs: 0 })).toMatchObject({ blobs: 1, builds: 0 });
    await inUse.store.blobs.add(chunks("content"));
    ageAll(13 * DAY_MS);
    expect(await inUse.store.prune()).toMatchObject({ blobs: 0, builds: 0 });
    ageAll(15 * DAY_MS);
    inUse.store.blobs.missing([blob.digest]);
    expect(await inUse.store.prune()).toMatchObject({ blobs: 0, builds: 1 });
    age(path, 15 * DAY_MS);
    expect(await inUse.store.prune()).toMatchObject({ blobs: 1, builds: 0 });
  });

  test("spares the blobs of a build that goes on", async () => {
    const { digest: blob } = await inUse.store.blobs.add(chunks("content"));
    age(inUse.store.blobs.path(blob), 3600_000 * 2);
    const build = createBuildId();
    claimLayer(inUse.store.directory, build, createLayerId());
    expect((await inUse.store.prune({ all: true })).blobs).toBe(0);
    releaseClaims(inUse.store.directory, build);
    age(inUse.store.blobs.path(blob), 3600_000 * 2);
    expect((await inUse.store.prune({ all: true })).blobs).toBe(1);
  });

  test("takes names that stand for nothing, and records of layers that are gone", async () => {
    const record = await inUse.addImage();
    inUse.store.setName({ owner: "k1", name: "app", tag: "latest" }, record.id);
    await inUse.store.sizes(record);
    rmSync(join(inUse.store.directory, "records", `${record.id}.json`));
    await inUse.engine.layers.remove(only(record.layers));
    await inUse.store.prune();
    for (const directory of ["names", "layers"]) {
      expect(readdirSync(join(inUse.store.directory, directory))).toEqual([]);
    }
  });
});

describe("sizes and times", () => {
  const inUse = useImages({ pool: "dir" });

  test.each([-1, Number.NaN, "1"])("pruning refuses %j as a time", async (unusedForMs) => {
    await expect(inUse.store.prune({ unusedForMs: unusedForMs as number })).rejects.toThrow(code("invalid_argument"));
  });

  test("tell what removing an image would free from what it shares", async () => {
    const file = (kib: number) => (directory: string) => writeFileSync(join(directory, "f"), Buffer.alloc(kib * 1024));
    const [shared, own, cached] = [
      await inUse.addLayer(file(64)),
      await inUse.addLayer(file(256)),
      await inUse.addLayer(file(512)),
    ];
    const base = await inUse.addImage({ layers: [shared] });
    const app = await inUse.addImage({ layers: [own, cached, shared] });
    inUse.store.cacheStep(digest("1"), cached);
    const sizes = await inUse.store.sizes(app);
    expect(sizes.totalBytes).toBe(sizes.uniqueBytes + sizes.sharedBytes);
    expect(sizes.uniqueBytes).toBeGreaterThanOrEqual(256 * 1024);
    expect(sizes.uniqueBytes).toBeLessThan(300 * 1024);
    expect(sizes.sharedBytes).toBeGreaterThanOrEqual(576 * 1024);
    expect(await inUse.store.sizes(base)).toMatchObject({ uniqueBytes: 0 });
    expect(inUse.store.layer(own)?.sizeBytes).toBe(sizes.uniqueBytes);
    expect((await inUse.store.remove(app.id)).freedBytes).toBe(sizes.uniqueBytes);
  });
});

async function* chunks(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text);
}

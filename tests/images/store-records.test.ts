import { readdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createLayerId } from "@holdfast/engine";
import type { ImageName, ImageRecord, Owner } from "@holdfast/images";
import type { Digest } from "@holdfast/recipe";
import { describe, expect, test } from "vitest";
import { createImageId } from "../../packages/images/src/store/ids.js";
import { putNamed } from "../../packages/images/src/store/put-named.js";
import { imageRecord, useImages } from "../helpers/use-images.js";

const digest = (digits: string): Digest => `sha256:${digits.padEnd(64, "0")}`;
const named = (name: string, tag = "latest", owner: Owner = null): ImageName => ({ owner, name, tag });
const code = (value: string) => expect.objectContaining({ code: value });

describe("records", () => {
  const inUse = useImages({ pool: "dir" });

  test("come back whole, newest first, in whatever process", async () => {
    const old = await inUse.addImage({ createdAt: "2026-01-01T00:00:00.000Z", limits: { memoryBytes: 1 } });
    const young = await inUse.addImage({ createdAt: "2026-02-01T00:00:00.000Z", layers: old.layers });
    expect(inUse.reopen().list()).toEqual([young, old]);
    expect(inUse.reopen().get(old.id)).toEqual(old);
    expect(inUse.store.get("../../x" as ImageRecord["id"])).toBeUndefined();
  });

  test("are refused if a layer is not there or a field is wrong, and nothing is left of them", async () => {
    const layer = await inUse.addLayer();
    expect(() => inUse.store.put(imageRecord({ layers: [layer, createLayerId()] }))).toThrow(code("image_invalid"));
    expect(() => inUse.store.put(imageRecord({ layers: [layer], disk: createLayerId() }))).toThrow(
      code("image_invalid"),
    );
    expect(() => inUse.store.put(imageRecord({ layers: [layer], digest: "x" as Digest }))).toThrow(
      code("invalid_argument"),
    );
    expect(inUse.store.list()).toEqual([]);
    for (const directory of ["records", "tmp", "claims"]) {
      expect(readdirSync(join(inUse.store.directory, directory))).toEqual([]);
    }
  });

  test("that are damaged are reported once, passed over, and named by whoever asks for them", async () => {
    const good = await inUse.addImage();
    const bad = await inUse.addImage();
    inUse.store.setName(named("bad"), bad.id);
    truncateSync(join(inUse.store.directory, "records", `${bad.id}.json`), 100);
    writeFileSync(join(inUse.store.directory, "records", "notes.txt"), "not ours");
    const warnings: unknown[] = [];
    const store = inUse.reopen({ log: { info: () => {}, warn: (facts) => warnings.push(facts) } });
    expect(store.list()).toEqual([good]);
    expect(store.list()).toEqual([good]);
    expect(store.find("bad", null)).toBeUndefined();
    expect(warnings).toHaveLength(2);
    expect(store.problems().map(({ problem }) => problem)).toContain("it is not JSON, perhaps cut off");
    for (const reference of ["bad", bad.id])
      expect(() => store.require(reference, null)).toThrow(code("image_invalid"));
    await store.prune({ all: true });
    expect(store.problems().map(({ path }) => path)).toContainEqual(expect.stringContaining(bad.id));
    expect((await store.remove(bad.id)).images).toEqual([bad.id]);
    expect(() => store.require("bad", null)).toThrow(code("image_not_found"));
  });

  test("of a later version are refused as such, and neither they nor their layers go", async () => {
    const record = await inUse.addImage();
    const path = join(inUse.store.directory, "records", `${record.id}.json`);
    writeFileSync(path, JSON.stringify({ ...record, version: 2 }));
    inUse.store.setName(named("other"), (await inUse.addImage()).id);
    const store = inUse.reopen({ graceMs: 0 });
    expect(() => store.require(record.id, null)).toThrow(/version 2/);
    await expect(store.remove(record.id)).rejects.toThrow(/version 2/);
    await store.prune({ all: true });
    expect(inUse.engine.layers.has(record.layers[0] as (typeof record.layers)[0])).toBe(true);
    expect(JSON.parse(readFileSync(path, "utf8")).version).toBe(2);
  });

  test("without their layers are shown as broken, and refused to whoever wants to use them", async () => {
    const record = await inUse.addImage();
    inUse.store.setName(named("app"), record.id);
    const [layer] = record.layers;
    if (layer === undefined) throw new Error("no layer");
    await inUse.engine.layers.remove(layer);
    expect(inUse.store.list()).toEqual([record]);
    expect(inUse.store.missingLayers(record)).toEqual([layer]);
    expect(() => inUse.store.require("app", null)).toThrow(
      expect.objectContaining({ code: "image_invalid", hint: expect.stringContaining("holdfast image rm app") }),
    );
    await inUse.store.remove(record.id);
    expect(inUse.store.list()).toEqual([]);
  });
});

describe("finding", () => {
  const inUse = useImages({ pool: "dir" });

  test("goes by id, by digest and by enough of its digits", async () => {
    const record = await inUse.addImage({ digest: digest("abcdef012345aa") });
    const { store } = inUse;
    for (const reference of [record.id, record.digest, "abcdef012345", "sha256:abcdef012345a", `x@${record.digest}`]) {
      expect(store.find(reference, null)).toEqual(record);
    }
    expect(store.find("abcdef012346", null)).toBeUndefined();
    expect(store.find("abcdef01234", null)).toBeUndefined();
    expect(() => store.find("sha256:abcdef01234", null)).toThrow(code("invalid_argument"));
    expect(store.find(createImageId(), null)).toBeUndefined();
  });

  test("refuses digits that begin several digests, and lists them", async () => {
    const { layers } = await inUse.addImage({ digest: digest("abcdef012345aa") });
    await inUse.addImage({ layers, digest: digest("abcdef012345bb") });
    expect(() => inUse.store.find("abcdef012345", null)).toThrow(
      expect.objectContaining({
        code: "invalid_argument",
        details: expect.objectContaining({ candidates: [digest("abcdef012345aa"), digest("abcdef012345bb")] }),
      }),
    );
  });

  test("takes the owner's own of images with the same content, then the newest", async () => {
    const operators = await inUse.addImage({ digest: digest("aa"), createdAt: "2026-03-01T00:00:00.000Z" });
    const { layers } = operators;
    await inUse.addImage({ layers, digest: digest("aa"), owner: "k1", createdAt: "2026-01-01T00:00:00.000Z" });
    const own = await inUse.addImage({
      layers,
      digest: digest("aa"),
      owner: "k1",
      createdAt: "2026-02-01T00:00:00.000Z",
    });
    expect(inUse.store.find(digest("aa"), "k1")).toEqual(own);
    expect(inUse.store.find(digest("aa"), "k2")).toEqual(operators);
  });

  test("goes by name: the owner's own first, latest before default", async () => {
    const base = await inUse.addImage();
    const { layers } = base;
    const own = await inUse.addImage({ layers, owner: "k1" });
    const { store } = inUse;
    store.setName(named("app", "default"), base.id);
    expect(store.find("app", "k1")).toEqual(base);
    store.setName(named("app", "default", "k1"), own.id);
    expect(store.find("app", "k1")).toEqual(own);
    expect(store.find("app", "k2")).toEqual(base);
    const latest = await inUse.addImage({ layers });
    store.setName(named("app", "latest"), latest.id);
    expect(store.find("app", null)).toEqual(latest);
    expect(store.find("app:default", null)).toEqual(base);
    expect(store.find("app:other", null)).toBeUndefined();
    expect(store.find("app", "k1")).toEqual(own);
  });

  test("says what there is when there is nothing", async () => {
    expect(() => inUse.store.require("app", null)).toThrow(code("image_not_found"));
    inUse.store.setName(named("base"), (await inUse.addImage()).id);
    expect(() => inUse.store.require("app", "k1")).toThrow(
      expect.objectContaining({ code: "image_not_found", hint: expect.stringContaining("base:latest") }),
    );
    expect(() => inUse.store.find("Not A Name", null)).toThrow(code("invalid_argument"));
  });

  test("shows nobody another key's images in any way", async () => {
    const secret = await inUse.addImage({ owner: "k1", digest: digest("abcdef012345") });
    const shared = await inUse.addImage({ layers: secret.layers });
    const { store } = inUse;
    store.setName(named("secret", "latest", "k1"), secret.id);
    for (const owner of ["k2", null, "K1", ""]) {
      for (const reference of [secret.id, secret.digest, "abcdef012345", "secret", `secret@${secret.digest}`]) {
        expect(store.find(reference, owner)).toBeUndefined();
        expect(() => store.require(reference, owner)).toThrow(
          expect.objectContaining({ code: "image_not_found", hint: expect.stringContaining("no named images") }),
        );
      }
      expect(store.list({ owner })).toEqual([shared]);
      expect(store.names({ owner })).toEqual([]);
    }
    expect(store.list({ owner: "k1" })).toHaveLength(2);
    expect(store.list()).toHaveLength(2);
    // Nor can anybody be shown it by giving it a name.
    for (const owner of ["k2", null]) {
      expect(() => store.setName(named("mine", "latest", owner), secret.id)).toThrow(code("access_denied"));
    }
    expect(store.names().map(({ name }) => name.owner)).toEqual(["k1"]);
  });
});

describe("names", () => {
  const inUse = useImages({ pool: "dir" });

  test("are moved, listed and removed; those that look alike are different", async () => {
    const a = await inUse.addImage({ owner: "k1" });
    const b = await inUse.addImage({ owner: "k1", layers: a.layers });
    const { store } = inUse;
    const names = [
      named("app", "v1", "k1"),
      named("app", "V1", "k1"),
      named("app", "..", "k1"),
      named("localhost:5000/team/app", "v1", "k1"),
      named("team/app", "v1", "k1"),
      named("a".repeat(255), "t".repeat(128), "k1"),
      named(`${"a".repeat(254)}b`, "t".repeat(128), "k1"),
    ];
    for (const name of names) store.setName(name, a.id);
    expect(store.names({ imageId: a.id })).toHaveLength(names.length);
    store.setName(named("app", "v1", "k1"), b.id);
    expect(store.names({ imageId: b.id }).map(({ name }) => name)).toEqual([named("app", "v1", "k1")]);
    expect(store.find("app:V1", "k1")).toEqual(a);
    for (const name of names) expect(store.removeName(name)).toBe(true);
    expect(store.removeName(named("app", "v1", "k1"))).toBe(false);
    expect(readdirSync(join(store.directory, "names"))).toEqual([]);
  });

  test("keep the time since when they stand for the same image", async () => {
    const { id } = await inUse.addImage();
    inUse.store.setName(named("app"), id);
    const [before] = inUse.store.names();
    inUse.store.setName(named("app"), id);
    expect(inUse.store.names()).toEqual([before]);
  });

  test.each([
    { owner: null, name: "../x", tag: "latest" },
    { owner: null, name: "app", tag: "a/b" },
    { owner: null, name: "app", tag: "" },
    { owner: "", name: "app", tag: "latest" },
  ])("such as %o are refused", async (name) => {
    const { id } = await inUse.addImage();
    expect(() => inUse.store.setName(name, id)).toThrow(code("invalid_argument"));
    expect(() => inUse.store.removeName(name)).toThrow(code("invalid_argument"));
  });

  test("cannot be given to what is not there", () => {
    expect(() => inUse.store.setName(named("app"), createImageId())).toThrow(code("image_not_found"));
    expect(inUse.store.names()).toEqual([]);
  });

  test("owners whose ids lead elsewhere stay where they belong", async () => {
    for (const owner of ["../../x", "@operator", ".", "K1", "k1", "x".repeat(1000)]) {
      const record = await inUse.addImage({ owner });
      inUse.store.setName(named("app", "latest", owner), record.id);
      expect(inUse.store.find("app", owner)).toEqual(record);
    }
    expect(inUse.store.find("app", null)).toBeUndefined();
    expect(readdirSync(join(inUse.store.directory, "names"))).toHaveLength(6);
  });

  test("that are damaged or stand for nothing are passed over", async () => {
    const { id } = await inUse.addImage();
    inUse.store.setName(named("app"), id);
    const path = join(inUse.store.directory, "names", "@operator", "app");
    writeFileSync(join(path, "cut"), '{"version":1,"na');
    writeFileSync(join(path, "copied"), readFileSync(join(path, "latest")));
    expect(inUse.store.names()).toHaveLength(1);
    expect(inUse.store.problems()).toHaveLength(2);
    expect(inUse.store.find("app:cut", null)).toBeUndefined();
  });
});

describe("an image with its names", () => {
  const inUse = useImages({ pool: "dir" });

  /** Nobody can be called this. */
  function blocked(): ImageName {
    writeFileSync(join(inUse.store.directory, "names", "@operator", "blocked"), "in the way");
    return named("blocked");
  }
  const nameFiles = () => readdirSync(join(inUse.store.directory, "names", "@operator")).sort();

  test("is there with all of them", async () => {
    const record = imageRecord({ layers: [await inUse.addLayer()] });
    putNamed(inUse.store, record, [named("one"), named("two")]);
    expect([inUse.store.find("one", null), inUse.store.find("two", null)]).toEqual([record, record]);
  });

  test("is not there at all if one of them cannot be had, and the others stand for what they stood for", async () => {
    const before = await inUse.addImage();
    inUse.store.setName(named("taken"), before.id);
    const record = imageRecord({ layers: before.layers });
    expect(() => putNamed(inUse.store, record, [named("taken"), named("new"), blocked()])).toThrow();
    expect(inUse.store.list()).toEqual([before]);
    expect(inUse.store.find("taken", null)).toEqual(before);
    expect(nameFiles()).toEqual(["blocked", "taken"]);
  });

  test("stays as it was, under the names that it had, if it was there before", async () => {
    const before = await inUse.addImage();
    inUse.store.setName(named("own"), before.id);
    const changed = { ...before, floor: { memoryBytes: 1 } } as ImageRecord;
    expect(() => putNamed(inUse.store, changed, [named("own"), named("new"), blocked()])).toThrow();
    expect(inUse.store.list()).toEqual([before]);
    expect(inUse.store.find("own", null)).toEqual(before);
    expect(nameFiles()).toEqual(["blocked", "own"]);
  });
});

describe("layers and steps", () => {
  const inUse = useImages({ pool: "dir" });

  test("a layer is found by the digest of its content while it is there", async () => {
    const id = await inUse.addLayer();
    const record = {
      version: 1,
      id,
      createdAt: new Date().toISOString(),
      diffId: digest("1"),
      sizeBytes: 7,
      from: "x",
    } as const;
    inUse.store.putLayer(record);
    expect(inUse.store.layer(id)).toEqual(record);
    expect(inUse.reopen().layerByDiffId(digest("1"))).toEqual(record);
    expect(inUse.store.layerByDiffId(digest("2"))).toBeUndefined();
    await inUse.engine.layers.remove(id);
    expect(inUse.store.layerByDiffId(digest("1"))).toBeUndefined();
  });

  test("a step is cached while its layer is there", async () => {
    const layer = await inUse.addLayer();
    inUse.store.cacheStep(digest("1"), layer);
    expect(inUse.reopen().cachedStep(digest("1"))).toBe(layer);
    expect(inUse.store.cachedStep(digest("2"))).toBeUndefined();
    await inUse.engine.layers.remove(layer);
    expect(inUse.store.cachedStep(digest("1"))).toBeUndefined();
    expect(() => inUse.store.cacheStep(digest("1"), layer)).toThrow(code("image_invalid"));
    expect(() => inUse.store.cachedStep("sha256:../../x" as Digest)).toThrow(code("invalid_argument"));
  });

  test("a cached step that is damaged is run again", async () => {
    const layer = await inUse.addLayer();
    inUse.store.cacheStep(digest("1"), layer);
    truncateSync(join(inUse.store.directory, "steps", "1".padEnd(64, "0")), 0);
    expect(inUse.store.cachedStep(digest("1"))).toBeUndefined();
    inUse.store.cacheStep(digest("1"), layer);
    expect(inUse.store.cachedStep(digest("1"))).toBe(layer);
  });
});

/** Whatever is done in whatever order: no image without its layers, nothing removed that is needed, nothing kept that is not. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { createLayerId, type LayerId, type Sandbox } from "@holdfast/engine";
import type { ImageId, ImageRecord } from "@holdfast/images";
import { HoldfastError } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { claimLayer, releaseClaims } from "../../packages/images/src/store/claims.js";
import { createBuildId } from "../../packages/images/src/store/ids.js";
import { layersOf } from "../../packages/images/src/store/records.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { type ImagesInUse, useImages } from "../helpers/use-images.js";

const NAMES = ["a", "b", "c"];

type Action =
  | { readonly do: "put"; readonly on: number; readonly disk: boolean; readonly isChild: boolean }
  | { readonly do: "copy"; readonly of: number }
  | { readonly do: "name"; readonly image: number; readonly name: number }
  | { readonly do: "unname"; readonly name: number }
  | { readonly do: "remove"; readonly image: number }
  | { readonly do: "prune"; readonly all: boolean }
  | { readonly do: "cache"; readonly layer: number }
  | { readonly do: "claim"; readonly layer: number | undefined }
  | { readonly do: "release" }
  | { readonly do: "run"; readonly image: number }
  | { readonly do: "end" };

const index = fc.nat({ max: 30 });
const actions = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({ do: fc.constant("put" as const), on: index, disk: fc.boolean(), isChild: fc.boolean() }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("copy" as const), of: index }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant("name" as const), image: index, name: fc.nat({ max: 2 }) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("unname" as const), name: fc.nat({ max: 2 }) }) },
    { weight: 5, arbitrary: fc.record({ do: fc.constant("remove" as const), image: index }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant("prune" as const), all: fc.boolean() }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("cache" as const), layer: index }) },
    {
      weight: 2,
      arbitrary: fc.record({ do: fc.constant("claim" as const), layer: fc.option(index, { nil: undefined }) }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("release" as const) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("run" as const), image: index }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("end" as const) }) },
  ),
  { minLength: 10, maxLength: 40 },
);

/** What there should be, by the simplest means. */
class Model {
  images: ImageRecord[] = [];
  readonly names = new Map<string, ImageId>();
  steps: LayerId[] = [];
  claims: LayerId[] = [];
  sandboxes: { readonly sandbox: Sandbox; readonly layers: readonly LayerId[] }[] = [];

  at<T>(list: readonly T[], position: number): T | undefined {
    return list[position % Math.max(1, list.length)];
  }

  isNamed(id: ImageId): boolean {
    return [...this.names.values()].includes(id);
  }

  others(record: ImageRecord): ImageRecord[] {
    return this.images.filter(({ id }) => id !== record.id);
  }

  isInUse(record: ImageRecord): boolean {
    const elsewhere = this.others(record).flatMap(layersOf);
    const own = layersOf(record).filter((layer) => !elsewhere.includes(layer));
    const needed = [...this.claims, ...this.sandboxes.flatMap(({ layers }) => layers)];
    // What was made of a snapshot has its files, or their layer, for itself.
    const isStoodOn = record.disk === null && this.others(record).some(({ parent }) => parent === record.id);
    return isStoodOn || own.some((layer) => needed.includes(layer));
  }

  needed(): Set<LayerId> {
    return new Set([
      ...this.images.flatMap(layersOf),
      ...this.steps,
      ...this.claims,
      ...this.sandboxes.flatMap(({ layers }) => layers),
    ]);
  }

  forget(ids: readonly ImageId[]): void {
    this.images = this.images.filter(({ id }) => !ids.includes(id));
    for (const [name, id] of this.names) if (ids.includes(id)) this.names.delete(name);
  }
}

let chains = 0;
const nextChain = (): Digest => `sha256:${(chains++).toString(16).padStart(64, "0")}`;

async function act(inUse: ImagesInUse, model: Model, holder: string, action: Action): Promise<void> {
  const { store, engine } = inUse;
  const image = (position: number) => model.at(model.images, position);
  switch (action.do) {
    case "put": {
      const parent = image(action.on);
      const own = await inUse.addLayer();
      const lower = parent?.layers ?? [];
      model.images.push(
        await inUse.addImage({
          layers: action.disk ? lower : [own, ...lower],
          disk: action.disk ? own : null,
          parent: action.isChild ? (parent?.id ?? null) : null,
        }),
      );
      return;
    }
    case "copy": {
      const original = image(action.of);
      if (original !== undefined)
        model.images.push(await inUse.addImage({ layers: original.layers, disk: original.disk }));
      return;
    }
    case "name": {
      const record = image(action.image);
      const name = NAMES[action.name] as string;
      if (record === undefined) return;
      store.setName({ owner: null, name, tag: "latest" }, record.id);
      model.names.set(name, record.id);
      return;
    }
    case "unname": {
      const name = NAMES[action.name] as string;
      expect(store.removeName({ owner: null, name, tag: "latest" })).toBe(model.names.delete(name));
      return;
    }
    case "remove": {
      const record = image(action.image);
      if (record === undefined) return;
      const isInUse = model.isInUse(record);
      const before = engine.layers.list();
      const report = await store.remove(record.id).catch((error: unknown) => HoldfastError.from(error));
      if (report instanceof HoldfastError) {
        expect([report.code, isInUse]).toEqual(["image_in_use", true]);
        return;
      }
      expect(isInUse).toBe(false);
      model.forget([record.id]);
      const needed = model.needed();
      expect([...report.layers].sort()).toEqual(
        [...new Set(layersOf(record))].filter((layer) => before.includes(layer) && !needed.has(layer)).sort(),
      );
      return;
    }
    case "prune": {
      const before = { images: store.list(), layers: engine.layers.list() };
      const report = await store.prune({ all: action.all });
      if (!action.all) expect(report.images).toEqual([]);
      for (const id of report.images) expect(model.isNamed(id)).toBe(false);
      model.forget(report.images);
      if (action.all) model.steps = [];
      const left = engine.layers.list();
      expect([...report.layers].sort()).toEqual(before.layers.filter((layer) => !left.includes(layer)).sort());
      // All that is left is needed, and what is left of images without a name is in use.
      expect(new Set(left)).toEqual(model.needed());
      if (action.all)
        for (const record of model.images) expect(model.isNamed(record.id) || model.isInUse(record)).toBe(true);
      expect(await store.prune({ all: action.all })).toMatchObject({ images: [], layers: [], freedBytes: 0 });
      return;
    }
    case "cache": {
      const layer = model.at(
        [...model.needed()].filter((each) => engine.layers.has(each)),
        action.layer,
      );
      if (layer === undefined) return;
      store.cacheStep(nextChain(), layer);
      model.steps.push(layer);
      return;
    }
    case "claim": {
      const known = action.layer === undefined ? undefined : model.at([...model.needed()], action.layer);
      const layer = known ?? createLayerId();
      expect(claimLayer(store.directory, holder, layer)).toBe(true);
      if (!engine.layers.has(layer)) await (await engine.layers.draft(layer)).commit();
      model.claims.push(layer);
      return;
    }
    case "release":
      releaseClaims(store.directory, holder);
      model.claims = [];
      return;
    case "run": {
      const record = image(action.image);
      // Most of these images hold nothing that could run; what counts is what the sandbox stands on.
      if (record === undefined || record.layers.length === 0 || model.sandboxes.length >= 2) return;
      const sandbox = await inUse.create({ image: { kind: "layers", layers: record.layers } });
      model.sandboxes.push({ sandbox, layers: record.layers });
      return;
    }
    case "end":
      await model.sandboxes.shift()?.sandbox.kill("a test");
  }
}

function expectSound({ store, engine }: ImagesInUse, model: Model): void {
  expect(
    store
      .list()
      .map(({ id }) => id)
      .sort(),
  ).toEqual(model.images.map(({ id }) => id).sort());
  for (const layer of model.needed()) expect(engine.layers.has(layer)).toBe(true);
  expect(new Map(store.names().map(({ name, imageId }) => [name.name, imageId]))).toEqual(
    new Map([...model.names].sort()),
  );
  expect(store.problems()).toEqual([]);
}

describe("the store", () => {
  const inUse = useImages({ pool: "dir", store: { graceMs: 0 } });

  test(
    "does what a simple model of it does",
    async () => {
      // Every image stands on it, so that sandboxes can be made of them; it stays for all runs.
      const tiny = await inUse.addTinyImage();
      inUse.store.setName({ owner: null, name: "tiny", tag: "latest" }, tiny.id);
      await fc.assert(
        fc.asyncProperty(actions, async (list) => {
          const model = new Model();
          model.images.push(tiny);
          model.names.set("tiny", tiny.id);
          const holder = createBuildId();
          try {
            for (const action of list) {
              if (action.do === "remove" && model.at(model.images, action.image) === tiny) continue;
              await act(inUse, model, holder, action);
              expectSound(inUse, model);
            }
          } finally {
            releaseClaims(inUse.store.directory, holder);
            for (const { sandbox } of model.sandboxes) await sandbox.kill("the end of a run");
            for (const name of NAMES) inUse.store.removeName({ owner: null, name, tag: "latest" });
            await inUse.store.prune({ all: true });
          }
          expect(inUse.store.list()).toEqual([tiny]);
          expect(inUse.engine.layers.list()).toEqual(tiny.layers);
          for (const directory of ["going", "claims", "tmp", "steps"]) {
            expect(readdirSync(join(inUse.store.directory, directory))).toEqual([]);
          }
        }),
        { numRuns: scaled(20, 3) },
      );
    },
    patienceMs(60_000),
  );
});

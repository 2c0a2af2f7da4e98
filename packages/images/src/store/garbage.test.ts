import type { LayerId } from "@holdfast/engine";
import type { SandboxId } from "@holdfast/protocol";
import { describe, expect, test } from "vitest";
import type { ImageId } from "../types.js";
import { type HoldingImage, Holdings } from "./garbage.js";

function image(
  id: string,
  layers: string[],
  parts: { disk?: string; parent?: string; createdAt?: string } = {},
): HoldingImage {
  return {
    id: id as ImageId,
    layers: layers as LayerId[],
    disk: (parts.disk ?? null) as LayerId | null,
    parent: (parts.parent ?? null) as ImageId | null,
    createdAt: parts.createdAt ?? "2026-01-01T00:00:00.000Z",
  };
}

function holdings(
  images: HoldingImage[],
  parts: { steps?: string[]; claims?: Record<string, string[]>; unclear?: string[] } = {},
) {
  return new Holdings({
    images,
    steps: new Set(parts.steps as LayerId[] | undefined),
    claims: new Map(Object.entries(parts.claims ?? {}) as [LayerId, string[]][]),
    unclear: new Set(parts.unclear as LayerId[] | undefined),
  });
}

const nobody = () => [];
const on =
  (...layers: string[]) =>
  (layer: LayerId): SandboxId[] =>
    layers.includes(layer) ? ["i1" as SandboxId] : [];

describe("removing one image", () => {
  const base = image("base", ["l1"]);
  const app = image("app", ["l2", "l1"], { parent: "base" });

  test("frees the layers that only it has", () => {
    expect(holdings([base, app]).layersFreedWith(app)).toEqual(["l2"]);
  });

  test("spares what a cached step, a build or an unreadable record needs", () => {
    expect(holdings([base, app], { steps: ["l2"] }).layersFreedWith(app)).toEqual([]);
    expect(holdings([base, app], { claims: { l2: ["b1"] } }).layersFreedWith(app)).toEqual([]);
    expect(holdings([base, app], { unclear: ["l2"] }).layersFreedWith(app)).toEqual([]);
  });

  test("is kept from it by an image that was made on it", () => {
    expect(holdings([base, app]).usesOf(base, nobody).images).toEqual(["app"]);
    expect(holdings([base, app]).usesOf(app, nobody)).toEqual({ sandboxes: [], images: [], builds: [] });
  });

  test("is kept from it by a sandbox or a build on a layer that no other image has", () => {
    expect(holdings([base, app]).usesOf(app, on("l2", "l1")).sandboxes).toEqual(["i1"]);
    expect(holdings([base, app]).usesOf(app, on("l1")).sandboxes).toEqual([]);
    expect(holdings([base, app], { claims: { l2: ["b1"] } }).usesOf(app, nobody).builds).toEqual(["b1"]);
  });

  test("counts a snapshot's own files as one of its layers", () => {
    const snapshot = image("snap", ["l1"], { disk: "l3" });
    expect(holdings([base, snapshot]).layersFreedWith(snapshot)).toEqual(["l3"]);
  });
});

describe("images without a name", () => {
  const choose = (images: HoldingImage[], options: { named?: string[]; users?: typeof nobody; before?: number } = {}) =>
    holdings(images)
      .forgetUnnamed({
        isNamed: (id) => (options.named ?? []).includes(id),
        users: options.users ?? nobody,
        createdBeforeMs: options.before ?? Number.POSITIVE_INFINITY,
      })
      .map(({ id }) => id);

  test("go, children before what they were made on", () => {
    const chain = [image("a", ["l1"]), image("b", ["l2", "l1"], { parent: "a" }), image("c", ["l3"], { parent: "b" })];
    expect(choose(chain)).toEqual(["c", "b", "a"]);
  });

  test("stay if an image with a name was made on them", () => {
    expect(choose([image("a", ["l1"]), image("b", ["l1"], { parent: "a" })], { named: ["b"] })).toEqual([]);
  });

  test("stay while a sandbox stands on them, the last one that has its layers at least", () => {
    const users = on("l1") as typeof nobody;
    expect(choose([image("a", ["l1"])], { users })).toEqual([]);
    expect(choose([image("a", ["l1"]), image("b", ["l1"])], { users })).toHaveLength(1);
  });

  test("stay if they are younger than asked for", () => {
    const images = [image("old", ["l1"]), image("young", ["l2"], { createdAt: "2026-02-01T00:00:00.000Z" })];
    expect(choose(images, { before: Date.parse("2026-01-15") })).toEqual(["old"]);
  });

  test("a long chain does not take long, in whatever order", () => {
    const chain = Array.from({ length: 3000 }, (_, index) =>
      image(`i${index}`, [`l${index}`], index === 0 ? {} : { parent: `i${index - 1}` }),
    );
    expect(choose(chain)).toHaveLength(3000);
    expect(choose(chain.toReversed())).toHaveLength(3000);
  });
});

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseManifest } from "./parse-manifest.js";
import { choosePlatform, parsePlatform } from "./platform.js";
import { type Descriptor, MEDIA_TYPES } from "./types.js";

const digest = `sha256:${"b".repeat(64)}` as const;
const config = { mediaType: MEDIA_TYPES.ociConfig, digest, size: 10 };
const layer = { mediaType: MEDIA_TYPES.ociLayer, digest, size: 10 };
const manifest = { schemaVersion: 2, mediaType: MEDIA_TYPES.ociManifest, config, layers: [layer] };
const parse = (value: unknown, mediaType?: string) =>
  parseManifest(Buffer.from(JSON.stringify(value)), { what: "m", mediaType });

describe("a manifest", () => {
  test("is told from an index, also without its media type", () => {
    expect(parse(manifest).kind).toBe("manifest");
    expect(parse({ ...manifest, mediaType: undefined }).kind).toBe("manifest");
    expect(parse({ schemaVersion: 2, manifests: [] }).kind).toBe("index");
    expect(parse({ ...manifest, mediaType: undefined }, `${MEDIA_TYPES.ociManifest}; charset=utf-8`).kind).toBe(
      "manifest",
    );
    const docker = { ...manifest, mediaType: MEDIA_TYPES.dockerManifest };
    expect(parse({ ...docker, config: { ...config, mediaType: MEDIA_TYPES.dockerConfig } }).kind).toBe("manifest");
  });

  test("that is two things at once is refused", () => {
    expect(() => parse({ ...manifest, manifests: [] })).toThrow("a manifest with manifests");
    expect(() => parse({ schemaVersion: 2, manifests: [], layers: [layer], config })).toThrow("an index with layers");
    expect(() => parse(manifest, MEDIA_TYPES.ociIndex)).toThrow("but it came as");
  });

  test.each([
    ["schema 1", { schemaVersion: 1, fsLayers: [] }, "schema 1 is not supported"],
    [
      "a chart",
      { ...manifest, config: { ...config, mediaType: "application/vnd.cncf.helm.config.v1+json" } },
      "not an image's",
    ],
    ["a huge config", { ...manifest, config: { ...config, size: 1e9 } }, "at most"],
    ["too many layers", { ...manifest, layers: Array(129).fill(layer) }, "at most 128"],
    [
      "encrypted layers",
      { ...manifest, layers: [{ ...layer, mediaType: `${layer.mediaType}+gzip+encrypted` }] },
      "encrypted",
    ],
    ["a size that is a text", { ...manifest, layers: [{ ...layer, size: "1" }] }, "layers[0].size"],
    ["prototypes", { ...manifest, layers: [{ ...layer, mediaType: "constructor" }] }, "unknown kind of layer"],
  ])("is refused for %s", (_what, value, message) => {
    expect(() => parse(value)).toThrow(
      expect.objectContaining({ code: "image_invalid", message: expect.stringContaining(message) }),
    );
  });

  test("of any bytes is read or refused, never anything else", () => {
    const check = (bytes: Uint8Array) => {
      try {
        parseManifest(bytes, { what: "m" });
      } catch (error) {
        expect(error).toMatchObject({ code: "image_invalid" });
      }
    };
    fc.assert(fc.property(fc.uint8Array(), check));
    fc.assert(fc.property(fc.json(), (text) => check(Buffer.from(text))));
  });
});

describe("of several platforms", () => {
  const entry = (architecture: string, variant?: string): Descriptor => ({
    ...layer,
    mediaType: MEDIA_TYPES.ociManifest,
    platform: { os: "linux", architecture, variant },
  });

  test("the one that fits best is chosen", () => {
    const all = [entry("arm", "v7"), entry("amd64", "v3"), entry("amd64"), entry("arm64", "v8"), entry("arm", "v6")];
    const choose = (text: string) => choosePlatform(all, { wanted: parsePlatform(text), what: "m" }).platform;
    expect(choose("linux/amd64")).toMatchObject({ variant: undefined });
    expect(choose("linux/arm64")).toMatchObject({ variant: "v8" });
    expect(choose("linux/arm/v6")).toMatchObject({ variant: "v6" });
    expect(choose("linux/amd64/v3")).toMatchObject({ variant: "v3" });
    expect(() => choose("linux/arm/v5")).toThrow("nothing for linux/arm/v5");
    expect(() => choose("windows/amd64")).toThrow("nothing for windows/amd64");
  });

  test.each(["", "/", "a/b/c/d", "linux/../amd64/x", "LINUX/amd64"])("%j is no platform", (text) => {
    expect(() => parsePlatform(text)).toThrow("platform");
  });
});

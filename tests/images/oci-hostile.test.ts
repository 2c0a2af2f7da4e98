/** Archives that are cut off, changed, lying or malicious: refused with a reason, and nothing of them is left. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { gzipSync } from "node:zlib";
import type { HoldfastError } from "@holdfast/protocol";
import { describe, expect, test } from "vitest";
import { importImage } from "../../packages/images/src/oci/import-image.js";
import { tarHeader, tarPadding } from "../../packages/images/src/oci/tar-header.js";
import {
  contextOf,
  expectNothingLeft,
  type MadeImage,
  makeImage,
  makeLayer,
  randomLayer,
  sha256,
  tinyLayer,
  useRegistryImages,
} from "../helpers/registry-images.js";
import { temporaryDirectory } from "../helpers/use-images.js";

const inUse = useRegistryImages();

/** Refused with `image_invalid`, the message, and nothing left. */
async function expectRefused(path: string, message: RegExp): Promise<void> {
  const error = await importImage(contextOf(inUse), { path }, { owner: null }).then(
    () => expect.unreachable("it was taken in"),
    (reason: unknown) => reason as HoldfastError,
  );
  expect({ code: error.code, message: error.message }).toEqual({
    code: "image_invalid",
    message: expect.stringMatching(message),
  });
  expect(inUse.store.list()).toEqual([]);
  expect(inUse.engine.layers.list()).toEqual([]);
  expectNothingLeft(inUse);
}

function tarOf(directory: string): string {
  const path = join(temporaryDirectory(), "image.tar");
  execFileSync("tar", ["-C", directory, "-cf", path, "."]);
  return path;
}

const blobPath = (image: MadeImage, digest: string): string => join(image.directory, "blobs/sha256", digest.slice(7));
const lastLayer = (image: MadeImage) => image.blobs.at(-1) as MadeImage["blobs"][number];

describe("an archive that was cut off", () => {
  test.each([0.1, 0.5, 0.9, 0.99])("after %d of it is refused", async (share) => {
    const path = tarOf(makeImage([tinyLayer(), randomLayer(300_000)]).directory);
    truncateSync(path, Math.floor(readFileSync(path).length * share));
    await expectRefused(path, /cut off|no image|no file/);
  });

  test("and compressed as a whole is refused", async () => {
    const path = tarOf(makeImage([randomLayer(100_000)]).directory);
    const packed = gzipSync(readFileSync(path));
    writeFileSync(path, packed.subarray(0, packed.length - 1000));
    await expectRefused(path, /cannot decompress/);
    execFileSync("zstd", ["-q", "-f", tarOf(makeImage([randomLayer(100_000)]).directory), "-o", path]);
    truncateSync(path, readFileSync(path).length - 1000);
    await expectRefused(path, /cannot decompress/);
  });

  test("while it was being sent is refused", async () => {
    const content = readFileSync(tarOf(makeImage([tinyLayer()]).directory));
    for (const end of [content.length / 2, 3, 0]) {
      const stream = Readable.from([content.subarray(0, end)]);
      await expect(importImage(contextOf(inUse), { stream }, { owner: null })).rejects.toMatchObject({
        code: "image_invalid",
      });
    }
    const failing = Readable.from(
      (async function* () {
        yield content.subarray(0, 10_000);
        throw new Error("the sender is gone");
      })(),
    );
    await expect(importImage(contextOf(inUse), { stream: failing }, { owner: null })).rejects.toThrow("sender is gone");
    expectNothingLeft(inUse);
  });
});

describe("a blob that is not what its digest says", () => {
  function change(path: string): void {
    const content = readFileSync(path);
    const at = Math.floor(content.length / 2);
    content[at] = (content[at] as number) ^ 1;
    writeFileSync(path, content);
  }

  test("is found out: a layer, compressed or not", async () => {
    for (const compression of ["none", "gzip"] as const) {
      const image = makeImage([tinyLayer(), randomLayer(200_000)], { compression });
      change(blobPath(image, lastLayer(image).digest));
      await expectRefused(image.directory, /not sha256:|cannot decompress|checksum/);
      await expectRefused(tarOf(image.directory), /not sha256:|cannot decompress|checksum/);
    }
  });

  test("is found out even if the layer is here already", async () => {
    const image = makeImage([randomLayer(100_000)]);
    const there = await importImage(contextOf(inUse), { path: image.directory }, { owner: "owner" });
    change(blobPath(image, lastLayer(image).digest));
    await expect(importImage(contextOf(inUse), { path: image.directory }, { owner: "thief" })).rejects.toMatchObject({
      code: "image_invalid",
    });
    expect(inUse.store.list().map(({ id }) => id)).toEqual([there.id]);
  });

  test("is found out: a layer that unpacks to something else", async () => {
    const [real, other] = [randomLayer(1000), randomLayer(1000)];
    const image = makeImage([real], { compression: "gzip" });
    const lie = gzipSync(other.tar);
    const manifest = readFileSync(blobPath(image, image.manifestDigest), "utf8")
      .replace(lastLayer(image).digest, sha256(lie))
      .replace(`"size":${lastLayer(image).content.length}`, `"size":${lie.length}`);
    for (const blob of [lie, Buffer.from(manifest)]) writeFileSync(blobPath(image, sha256(blob)), blob);
    const index = readFileSync(join(image.directory, "index.json"), "utf8")
      .replace(image.manifestDigest, sha256(Buffer.from(manifest)))
      .replace(/"size":\d+/, `"size":${manifest.length}`);
    writeFileSync(join(image.directory, "index.json"), index);
    await expectRefused(image.directory, /its content is sha256:.* not sha256:/);
  });

  test("is found out: config and manifest", async () => {
    const image = makeImage([tinyLayer()]);
    change(blobPath(image, sha256(image.config)));
    await expectRefused(image.directory, /config.*not sha256:/);
    const other = makeImage([tinyLayer()]);
    change(blobPath(other, other.manifestDigest));
    await expectRefused(other.directory, /manifest.*not sha256:/);
  });

  test("is missed if it is not there", async () => {
    const image = makeImage([tinyLayer()]);
    execFileSync("rm", [blobPath(image, lastLayer(image).digest)]);
    await expectRefused(image.directory, /no file "blobs\/sha256/);
  });
});

describe("documents that are not what they should be", () => {
  function withIndex(index: unknown): string {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, "index.json"), typeof index === "string" ? index : JSON.stringify(index));
    return directory;
  }
  const entry = {
    mediaType: "application/vnd.oci.image.manifest.v1+json",
    digest: `sha256:${"0".repeat(64)}`,
    size: 1,
  };

  test.each([
    ["no JSON", "{", /not JSON/],
    ["not an object", "[]", /expected an object/],
    ["nothing in it", { schemaVersion: 2, manifests: [] }, /no image/],
    ["schema 1", { schemaVersion: 1, fsLayers: [] }, /schema 1 is not supported/],
    [
      "a digest that is a path",
      { schemaVersion: 2, manifests: [{ ...entry, digest: "sha256:../../../etc/passwd" }] },
      /digest/,
    ],
    [
      "another algorithm",
      { schemaVersion: 2, manifests: [{ ...entry, digest: `sha512:${"0".repeat(128)}` }] },
      /sha256/,
    ],
    ["a size below zero", { schemaVersion: 2, manifests: [{ ...entry, size: -1 }] }, /size/],
    ["too long", `{"schemaVersion":2,"manifests":[],"x":"${"x".repeat(5_000_000)}"}`, /at most/],
    ["deep", "[".repeat(1_000_000), /not JSON|expected/],
  ])("are refused: %s", async (_what, index, message) => {
    await expectRefused(withIndex(index), message);
  });

  test("are refused: an index that holds itself", async () => {
    // A digest of itself cannot be made; one that leads nowhere after several steps can.
    const directory = temporaryDirectory();
    mkdirSync(join(directory, "blobs/sha256"), { recursive: true });
    let inner: object = entry;
    for (let depth = 0; depth < 6; depth++) {
      const index = Buffer.from(JSON.stringify({ schemaVersion: 2, manifests: [inner] }));
      writeFileSync(join(directory, "blobs/sha256", sha256(index).slice(7)), index);
      inner = { mediaType: "application/vnd.oci.image.index.v1+json", digest: sha256(index), size: index.length };
    }
    writeFileSync(join(directory, "index.json"), JSON.stringify({ schemaVersion: 2, manifests: [inner] }));
    await expectRefused(directory, /index of indexes/);
  });

  test("are refused: layers that nobody can unpack here, by name", async () => {
    for (const [mediaType, message] of [
      ["application/vnd.oci.image.layer.v1.tar+gzip+encrypted", /encrypted layers/],
      ["application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", /foreign layers/],
      ["application/vnd.oci.image.layer.nondistributable.v1.tar", /foreign layers/],
      ["application/x-whatever", /unknown kind of layer/],
    ] as const) {
      const image = makeImage([tinyLayer()]);
      const manifest = Buffer.from(image.manifest.toString().replace(/(layers.*mediaType":")[^"]*/, `$1${mediaType}`));
      writeFileSync(blobPath(image, sha256(manifest)), manifest);
      const index = {
        schemaVersion: 2,
        manifests: [{ ...entry, digest: sha256(manifest), size: manifest.length }],
      };
      writeFileSync(join(image.directory, "index.json"), JSON.stringify(index));
      await expectRefused(image.directory, message);
    }
  });

  test("are refused: docker's, with names that lead out of it", async () => {
    const directory = temporaryDirectory();
    for (const Config of ["../../../../etc/passwd", "/etc/passwd", "config\0.json"]) {
      writeFileSync(join(directory, "manifest.json"), JSON.stringify([{ Config, Layers: [] }]));
      await expectRefused(directory, /leads out|no file|zero byte/);
      await expectRefused(tarOf(directory), /leads out|no file|zero byte/);
    }
  });
});

describe("an archive whose headers lie", () => {
  function archive(...entries: readonly Buffer[]): string {
    const path = join(temporaryDirectory(), "image.tar");
    writeFileSync(path, Buffer.concat([...entries, Buffer.alloc(1024)]));
    return path;
  }
  const file = (name: string, content: string): Buffer =>
    Buffer.concat([tarHeader({ name, sizeBytes: content.length }), Buffer.from(content), tarPadding(content.length)]);

  test("is refused: nothing that is a tar", async () => {
    const path = join(temporaryDirectory(), "image.tar");
    for (const content of ["x".repeat(512), "hello", "PK\u0003\u0004".padEnd(600, "x")]) {
      writeFileSync(path, content);
      await expectRefused(path, /not a tar|cut off/);
    }
    writeFileSync(path, Buffer.from("fd377a585a000004", "hex"));
    await expectRefused(path, /compressed with xz/);
    writeFileSync(path, "");
    await expectRefused(path, /no image/);
  });

  test("is refused: a file longer than the archive, and one of a size without sense", async () => {
    await expectRefused(archive(tarHeader({ name: "index.json", sizeBytes: 2 ** 40 })), /cut off/);
    await expectRefused(archive(tarHeader({ name: "index.json", sizeBytes: Number.MAX_SAFE_INTEGER })), /cut off/);
  });

  test("is refused: names and devices", async () => {
    await expectRefused(archive(file("../index.json", "{}")), /leads out/);
    const device = tarHeader({ name: "index.json", sizeBytes: 0 });
    device.write("3", 156);
    device.write("        ", 148);
    device.write(
      `${device
        .reduce((sum, byte) => sum + byte, 0)
        .toString(8)
        .padStart(6, "0")}\0 `,
      148,
      "latin1",
    );
    await expectRefused(archive(device), /neither a file nor a link/);
  });

  test("is refused: links in a circle", async () => {
    const directory = temporaryDirectory();
    execFileSync("ln", ["-s", "manifest.json", join(directory, "index.json")]);
    execFileSync("ln", ["-s", "index.json", join(directory, "manifest.json")]);
    await expectRefused(tarOf(directory), /leads through more/);
  });
});

describe("a layer that would do harm", () => {
  /** A layer of one entry as GNU tar writes it, with its name replaced. */
  function layerWith(transform: string): { tar: Buffer } {
    const directory = temporaryDirectory();
    mkdirSync(join(directory, "a"));
    writeFileSync(join(directory, "a/file"), "evil");
    return {
      tar: execFileSync("tar", ["-P", "-C", directory, `--transform=${transform}`, "-c", "a/file"]),
    };
  }

  test("is refused: names that lead out of it", async () => {
    const target = join(temporaryDirectory(), "escaped");
    const up = "../".repeat(12);
    await expectRefused(makeImage([layerWith(`s,^,${up}${target},`)]).directory, /\.\./);
    expect(existsSync(target)).toBe(false);
  });

  test("is refused: a bomb that is larger than what is free, long before the disk is full", async () => {
    const directory = temporaryDirectory();
    execFileSync("truncate", ["-s", "4T", join(directory, "huge")]);
    // A header that promises 4 TiB: the content need not follow for it to be refused.
    const header = Buffer.from(tarHeader({ name: "huge", sizeBytes: 4 * 2 ** 40 }));
    const image = makeImage([{ tar: Buffer.concat([header, Buffer.alloc(100 * 1024)]) }], { compression: "gzip" });
    await expect(importImage(contextOf(inUse), { path: image.directory }, { owner: null })).rejects.toMatchObject({
      code: "no_space",
    });
    expect(inUse.engine.layers.list()).toEqual([]);
    expectNothingLeft(inUse);
  });

  test("is no harm: links out of the image are kept as they are and lead nowhere", async () => {
    const directory = temporaryDirectory();
    execFileSync("ln", ["-s", "/etc", join(directory, "link")]);
    const tar = execFileSync("tar", ["-C", directory, "-c", "link"]);
    const through = makeLayer({ "link/written": "by the next layer" });
    const record = await importImage(
      contextOf(inUse),
      { path: makeImage([tinyLayer(), { tar }, through]).directory },
      { owner: null },
    );
    expect(record.layers).toHaveLength(3);
    expect(existsSync("/etc/written")).toBe(false);
  });
});

import { randomBytes } from "node:crypto";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { compressed, decompressed, sniffCompression } from "./compression.js";

async function* inParts(content: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  // The same buffer each time, as big sources do it.
  const buffer = Buffer.alloc(size);
  for (let offset = 0; offset < content.length; offset += size) {
    const part = content.subarray(offset, offset + size);
    buffer.set(part);
    yield buffer.subarray(0, part.length);
  }
}

async function collect(content: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of content) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

describe.each(["none", "gzip", "zstd"] as const)("compression with %s", (kind) => {
  const what = "it";

  test("gives back what went in, from buffers that are used again", async () => {
    const content = Buffer.concat([randomBytes(300_000), Buffer.alloc(300_000), randomBytes(1)]);
    const packed = await collect(compressed(inParts(content, 7001), kind, { what }));
    expect(sniffCompression(packed)).toBe(kind === "none" ? sniffCompression(content) : kind);
    expect((await collect(decompressed(inParts(packed, 4099), kind, { what }))).equals(content)).toBe(true);
    expect((await collect(compressed(inParts(content, 7001), kind, { what }))).equals(packed)).toBe(true);
  });

  test("ends when its reader goes away, and stops its source", async () => {
    let stopped = false;
    const endless = async function* () {
      try {
        for (;;) yield randomBytes(100_000);
      } finally {
        stopped = true;
      }
    };
    for await (const chunk of compressed(endless(), kind, { what })) {
      expect(chunk.length).toBeGreaterThan(0);
      break;
    }
    await expect.poll(() => stopped).toBe(true);
  });

  test("passes on what its source says, and hears the signal", async () => {
    const failing = async function* () {
      yield randomBytes(10);
      throw new Error("the source broke");
    };
    await expect(collect(compressed(failing(), kind, { what }))).rejects.toThrow("the source broke");
    if (kind === "none") return;
    const stop = new AbortController();
    const silent = async function* () {
      yield randomBytes(10);
      setImmediate(() => stop.abort(new Error("stopped")));
      await new Promise(() => undefined);
    };
    await expect(collect(compressed(silent(), kind, { what, signal: stop.signal }))).rejects.toThrow("stopped");
  });
});

describe("bad input", () => {
  test.each(["gzip", "zstd"] as const)(
    "for %s is `image_invalid`: other bytes, changed ones, half of them",
    async (kind) => {
      const packed = await collect(compressed(inParts(randomBytes(200_000), 9999), kind, { what: "it" }));
      const changed = Buffer.from(packed);
      changed.fill(0xff, 1000, 1100);
      for (const content of [randomBytes(1000), changed, packed.subarray(0, packed.length - 100)]) {
        await expect(collect(decompressed(inParts(content, 5000), kind, { what: "layer 1" }))).rejects.toMatchObject({
          code: "image_invalid",
          message: expect.stringContaining("layer 1: "),
        });
      }
    },
  );

  test("is told by its first bytes", () => {
    expect(sniffCompression(gzipSync("x"))).toBe("gzip");
    expect(sniffCompression(Buffer.from("BZ"))).toBe("none");
    expect(() => sniffCompression(Buffer.from("BZh91AY"))).toThrow("bzip2");
    fc.assert(fc.property(fc.uint8Array({ maxLength: 1 }), (bytes) => sniffCompression(bytes) === "none"));
  });
});

import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Digest } from "@holdfast/recipe";
import { describe, expect, onTestFinished, test } from "vitest";
import { FileBlobStore } from "../../packages/images/src/store/blobs.js";
import { WholeFiles } from "../../packages/images/src/store/whole-files.js";
import { temporaryDirectory } from "../helpers/use-images.js";

const MIB = 1024 * 1024;
const code = (value: string) => expect.objectContaining({ code: value });
const digestOf = (content: Uint8Array | string): Digest =>
  `sha256:${createHash("sha256").update(content).digest("hex")}`;

function openBlobs(directory = temporaryDirectory(), maxBytes = Number.POSITIVE_INFINITY) {
  const files = new WholeFiles(join(directory, "tmp"));
  const blobs = new FileBlobStore({ directory: join(directory, "blobs"), files, maxBytes });
  const left = () => readdirSync(join(directory, "tmp"));
  return { blobs, left, directory };
}

async function* stream(...chunks: (Uint8Array | string)[]): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) yield Buffer.from(chunk as string);
}

describe("blobs", () => {
  test("come in as streams and are found by their digest", async () => {
    const { blobs, left } = openBlobs();
    const content = randomBytes(3 * MIB);
    await blobs.put(digestOf(content), stream(content.subarray(0, MIB), new Uint8Array(0), content.subarray(MIB)));
    expect(blobs.has(digestOf(content))).toBe(true);
    expect(blobs.sizeBytes(digestOf(content))).toBe(content.length);
    expect(readFileSync(blobs.path(digestOf(content))).equals(content)).toBe(true);
    expect(await blobs.add(stream("a", "b"))).toEqual({ digest: digestOf("ab"), sizeBytes: 2 });
    expect(await blobs.add(stream())).toEqual({ digest: digestOf(""), sizeBytes: 0 });
    expect(blobs.missing([digestOf("ab"), digestOf("x"), digestOf("x"), digestOf("")])).toEqual([digestOf("x")]);
    expect(left()).toEqual([]);
  });

  test("whose content is not what the digest says are refused", async () => {
    const { blobs, left } = openBlobs();
    await expect(blobs.put(digestOf("a"), stream("b"))).rejects.toThrow(code("invalid_argument"));
    expect(blobs.has(digestOf("a"))).toBe(false);
    expect(blobs.has(digestOf("b"))).toBe(false);
    expect(left()).toEqual([]);
  });

  test.each(["sha256:../../../etc/passwd", "sha256:", "x", `sha256:${"A".repeat(64)}`, 5])(
    "called %j are refused",
    async (bad) => {
      const { blobs } = openBlobs();
      const digest = bad as Digest;
      for (const use of [() => blobs.has(digest), () => blobs.path(digest), () => blobs.missing([digest])]) {
        expect(use).toThrow(code("invalid_argument"));
      }
      await expect(blobs.put(digest, stream("a"))).rejects.toThrow(code("invalid_argument"));
    },
  );

  test("that are there already are not read again", async () => {
    const { blobs } = openBlobs();
    await blobs.put(digestOf("a"), stream("a"));
    await blobs.put(digestOf("a"), {
      [Symbol.asyncIterator]: () => {
        throw new Error("it was read");
      },
    });
  });

  test("larger than allowed are refused while they come in", async () => {
    const { blobs, left } = openBlobs(undefined, 10);
    let sent = 0;
    const endless = (async function* () {
      for (;;) {
        sent += 1;
        yield Buffer.alloc(4);
      }
    })();
    await expect(blobs.add(endless)).rejects.toThrow(code("request_too_large"));
    expect(sent).toBe(3);
    await expect(blobs.add(stream("12345"), { maxBytes: 4 })).rejects.toThrow(code("request_too_large"));
    expect(await blobs.add(stream("1234567890"))).toMatchObject({ sizeBytes: 10 });
    expect(left()).toEqual([]);
  });

  test("whose source breaks leave nothing, and say what the source said", async () => {
    const { blobs, left } = openBlobs();
    const broken = (async function* () {
      yield Buffer.from("a");
      throw new RangeError("the client is gone");
    })();
    await expect(blobs.add(broken)).rejects.toThrow(RangeError);
    await expect(blobs.add(stream("a", 5 as unknown as string))).rejects.toThrow();
    const notBytes = (async function* () {
      yield "text";
    })() as unknown as AsyncIterable<Uint8Array>;
    await expect(blobs.add(notBytes)).rejects.toThrow(code("invalid_argument"));
    expect(left()).toEqual([]);
  });

  test("that are canceled leave nothing, though their source hangs", async () => {
    const { blobs, left } = openBlobs();
    const abort = new AbortController();
    const hanging = (async function* () {
      yield Buffer.from("a");
      await new Promise(() => {});
    })();
    const storing = blobs.add(hanging, { signal: abort.signal });
    while (left().length === 0) await sleep(1);
    abort.abort();
    await expect(storing).rejects.toThrow(code("canceled"));
    await expect(blobs.add(stream("a"), { signal: AbortSignal.abort() })).rejects.toThrow(code("canceled"));
    expect(left()).toEqual([]);
  });

  test("of one digest may come in many times at once", async () => {
    const { blobs, left } = openBlobs();
    const content = randomBytes(MIB);
    await Promise.all(Array.from({ length: 20 }, () => blobs.put(digestOf(content), stream(content))));
    expect(readFileSync(blobs.path(digestOf(content))).equals(content)).toBe(true);
    expect(left()).toEqual([]);
  });

  test("that do not fit give no_space and leave nothing", async () => {
    const directory = temporaryDirectory();
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=2m", "tmpfs", directory]);
    onTestFinished(() => void execFileSync("umount", [directory]));
    const { blobs, left } = openBlobs(directory);
    const large = async function* () {
      for (let count = 0; count < 8; count++) yield randomBytes(MIB / 2);
    };
    await expect(blobs.add(large())).rejects.toThrow(code("no_space"));
    expect(left()).toEqual([]);
    expect(await blobs.add(stream("small"))).toMatchObject({ sizeBytes: 5 });
  });

  test("are asked for by the thousand within a moment", () => {
    const { blobs, directory } = openBlobs();
    const digests = Array.from({ length: 4000 }, (_, index) => digestOf(String(index)));
    mkdirSync(join(directory, "blobs", "sha256"), { recursive: true });
    for (const digest of digests.slice(0, 1000)) {
      writeFileSync(join(directory, "blobs", "sha256", digest.slice(7)), "");
    }
    const startedAt = performance.now();
    expect(blobs.missing(digests)).toHaveLength(3000);
    expect(performance.now() - startedAt).toBeLessThan(1500);
  });

  test("take no memory of their own: a source is asked for more only when the last chunk is written", async () => {
    const { blobs } = openBlobs();
    const chunk = randomBytes(MIB);
    const heldBefore = process.memoryUsage.rss();
    let most = 0;
    await blobs.add(
      (async function* () {
        for (let count = 0; count < 256; count++) {
          most = Math.max(most, process.memoryUsage.rss());
          yield chunk;
        }
      })(),
    );
    expect(most - heldBefore).toBeLessThan(32 * MIB);
  });

  test("that are pruned while somebody asks for them are there or missing, never half", async () => {
    const { blobs } = openBlobs();
    const { digest } = await blobs.add(stream("content"));
    const { mtimeMs } = statSync(blobs.path(digest));
    expect(blobs.prune(mtimeMs - 1)).toEqual({ blobs: 0, freedBytes: 0 });
    expect(blobs.prune(mtimeMs)).toEqual({ blobs: 1, freedBytes: 7 });
    expect(blobs.missing([digest])).toEqual([digest]);
    expect(() => blobs.sizeBytes(digest)).toThrow(code("file_not_found"));
  });
});

/** A full disk in the middle, a killed process, a caller who has changed their mind: nothing half is left. */
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BubblewrapEngine } from "@holdfast/engine";
import type { ImagesContext } from "@holdfast/images";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { importImage } from "../../packages/images/src/oci/import-image.js";
import { openImageStore } from "../../packages/images/src/store/open-image-store.js";
import { runScript } from "../helpers/built-engine.js";
import { assertNoLeaks, type Inventory, takeInventory } from "../helpers/leaks.js";
import {
  contextOf,
  expectNothingLeft,
  MIB,
  makeImage,
  tinyLayer,
  useRegistryImages,
} from "../helpers/registry-images.js";
import { buildImages, temporaryDirectory } from "../helpers/use-images.js";

function sh(script: string): void {
  execFileSync("sh", ["-euc", script], { stdio: "ignore" });
}

/** An OCI layout whose one layer is what is in the directory. */
function imageOf(directory: string, compression: "none" | "gzip" = "none"): string {
  const tar = execFileSync("tar", ["-C", directory, "-c", "."], { maxBuffer: 1024 * MIB });
  return makeImage([tinyLayer(), { tar }], { compression }).directory;
}

/** Everything in it but directories. */
function filesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? [] : [join(entry.parentPath, entry.name).slice(directory.length + 1)],
  );
}

describe("on a small disk", () => {
  let before: Inventory;
  beforeAll(() => {
    before = takeInventory();
  });
  afterAll(() => assertNoLeaks(before));

  async function smallPool(sizeMb: number): Promise<ImagesContext> {
    const stateDirectory = temporaryDirectory();
    sh(`mount -t tmpfs -o size=${sizeMb}m tmpfs ${stateDirectory}`);
    const engine = await BubblewrapEngine.open({ stateDirectory, pool: "dir" });
    const store = openImageStore({ stateDirectory, layers: engine.layers });
    onTestFinished(async () => {
      await engine.close({ sandboxes: "kill" });
      sh(`umount ${stateDirectory}`);
    });
    return contextOf({ engine, store, stateDirectory } as Parameters<typeof contextOf>[0]);
  }

  function expectEmpty(context: ImagesContext): void {
    expect(context.store.list()).toEqual([]);
    expect(context.engine.layers.list()).toEqual([]);
    expect(filesBelow(join(context.stateDirectory, "disks"))).toEqual([]);
    const left = filesBelow(context.store.directory).filter((name) => name !== "lock");
    expect(left).toEqual([]);
  }

  test("an image that is too large is refused before anything is unpacked, with both numbers", async () => {
    const context = await smallPool(16);
    const directory = temporaryDirectory();
    writeFileSync(join(directory, "random"), randomBytes(20 * MIB));
    const phases: string[] = [];
    const onProgress = ({ doneBytes }: { doneBytes: number }) => {
      if (doneBytes > 0) phases.push("moved");
    };
    const wanted = importImage(context, { path: imageOf(directory) }, { owner: null, onProgress });
    await expect(wanted).rejects.toMatchObject({
      code: "no_space",
      message: expect.stringMatching(/needs at least 2\d\.\d MiB .* has 1\d\.\d MiB/),
      details: { neededBytes: expect.any(Number), freeBytes: expect.any(Number) },
    });
    expect(phases).toEqual([]);
    expectEmpty(context);
  });

  test("a stream that does not fit into scratch is refused before it is read, and in the middle", async () => {
    const context = await smallPool(16);
    const directory = temporaryDirectory();
    writeFileSync(join(directory, "random"), randomBytes(20 * MIB));
    let read = 0;
    const stream = async function* () {
      for (;;) {
        read += MIB;
        yield randomBytes(MIB);
        if (read > 64 * MIB) throw new Error("nobody stopped it");
      }
    };
    await expect(
      importImage(context, { stream: stream(), sizeBytes: 20 * MIB }, { owner: null }),
    ).rejects.toMatchObject({ code: "no_space", details: { neededBytes: 20 * MIB, freeBytes: expect.any(Number) } });
    expect(read).toBe(0);
    await expect(importImage(context, { stream: stream() }, { owner: null })).rejects.toMatchObject({
      code: "no_space",
    });
    expectEmpty(context);
  });

  test("a layer that needs more than anybody could know leaves nothing", async () => {
    const context = await smallPool(12);
    const directory = temporaryDirectory();
    // Each takes a page.
    for (let index = 0; index < 3000; index++) writeFileSync(join(directory, String(index)), "x");
    await expect(importImage(context, { path: imageOf(directory, "gzip") }, { owner: null })).rejects.toMatchObject({
      code: "no_space",
    });
    expectEmpty(context);
    // What fits still goes in afterwards.
    const small = await importImage(context, { path: makeImage([tinyLayer()]).directory }, { owner: null });
    expect(context.engine.layers.has(small.layers[0] as (typeof small.layers)[number])).toBe(true);
  });
});

describe("an import that is stopped", () => {
  const inUse = useRegistryImages();

  test("by its caller leaves nothing", async () => {
    const directory = temporaryDirectory();
    writeFileSync(join(directory, "random"), randomBytes(40 * MIB));
    const path = imageOf(directory);
    for (const after of [0, 8 * MIB, 30 * MIB]) {
      const stop = new AbortController();
      const stopped = importImage(
        contextOf(inUse),
        { path },
        {
          owner: null,
          signal: stop.signal,
          onProgress: ({ doneBytes }) => {
            if (doneBytes >= after) stop.abort();
          },
        },
      );
      await expect(stopped).rejects.toMatchObject({ code: "canceled" });
      expect(inUse.store.list()).toEqual([]);
      expectNothingLeft(inUse);
    }
  });

  test("while its sender says nothing ends at once", async () => {
    const stop = new AbortController();
    const silent = async function* () {
      yield Buffer.alloc(1000);
      setTimeout(() => stop.abort(), 50);
      await new Promise(() => undefined);
    };
    await expect(
      importImage(contextOf(inUse), { stream: silent() }, { owner: null, signal: stop.signal }),
    ).rejects.toMatchObject({ code: "canceled" });
    expectNothingLeft(inUse);
  });
});

describe("a process that is killed in the middle of an import", () => {
  beforeAll(buildImages, 120_000);

  test.each(["import", "importStream"])("leaves nothing when the next one has started (%s)", async (job) => {
    const stateDirectory = temporaryDirectory();
    const source = temporaryDirectory();
    writeFileSync(join(source, "random"), randomBytes(64 * MIB));
    const layout = imageOf(source);
    const archive = join(temporaryDirectory(), "image.tar");
    sh(`tar -C ${layout} -cf ${archive} .`);
    const child = runScript("oci-move.mjs", [stateDirectory]);
    await child.next();
    child.child.stdin?.write(`${JSON.stringify({ job, path: archive, progress: true })}\n`);
    await child.next();
    child.child.kill("SIGKILL");
    await child.exited;
    const half = execFileSync("du", ["-sk", stateDirectory], { encoding: "utf8" });
    expect(Number(half.split("\t")[0])).toBeGreaterThan(1024);

    const engine = await BubblewrapEngine.open({ stateDirectory, pool: "dir" });
    try {
      const store = openImageStore({ stateDirectory, layers: engine.layers, graceMs: 0 });
      // As every start does.
      await engine.sweep({ which: "abandoned" });
      await store.recover();
      expect(store.list()).toEqual([]);
      expect(engine.layers.list()).toEqual([]);
      const big = filesBelow(stateDirectory).filter((name) => statSync(join(stateDirectory, name)).size > 4096);
      expect(big).toEqual([]);
      for (const name of ["scratch", "claims", "tmp"]) {
        mkdirSync(join(store.directory, name), { recursive: true });
        expect({ name, left: readdirSync(join(store.directory, name)) }).toEqual({ name, left: [] });
      }
      const context = contextOf({ engine, store, stateDirectory } as Parameters<typeof contextOf>[0]);
      const record = await importImage(context, { path: archive }, { owner: null });
      expect(record.layers).toHaveLength(2);
    } finally {
      await engine.close({ sandboxes: "kill" });
    }
  });
});

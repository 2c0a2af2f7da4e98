/** What goes wrong late, or on purpose: nothing is left of it, and nothing of anybody else's is touched. */
import { execFileSync } from "node:child_process";
import { chownSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BubblewrapEngine } from "@holdfast/engine";
import type { ImageName } from "@holdfast/images";
import { describe, expect, onTestFinished, test } from "vitest";
import { deliverImage } from "../../packages/images/src/deliver/deliver-image.js";
import { exportImage } from "../../packages/images/src/oci/export-image.js";
import { importImage } from "../../packages/images/src/oci/import-image.js";
import { openImageStore } from "../../packages/images/src/store/open-image-store.js";
import {
  contextOf,
  expectNothingLeft,
  MIB,
  makeImage,
  makeLayer,
  tinyLayer,
  useRegistryImages,
} from "../helpers/registry-images.js";
import { temporaryDirectory } from "../helpers/use-images.js";

describe("an image", () => {
  const inUse = useRegistryImages();
  const own = (name: string): ImageName => ({ owner: "key-a", name, tag: "latest" });
  const operators: ImageName = { owner: null, name: "shared", tag: "latest" };

  test("that cannot be called what it was to be called is not there, and names stay with what they stood for", async () => {
    const context = contextOf(inUse);
    const older = await importImage(
      context,
      { path: makeImage([makeLayer({ a: "1" })]).directory },
      { owner: "key-a", names: [own("app")] },
    );
    const { directory: path } = makeImage([tinyLayer()]);
    // The first name could be set, the second cannot: it is not the owner's to give.
    const wanted = importImage(context, { path }, { owner: "key-a", names: [own("app"), operators] });
    await expect(wanted).rejects.toMatchObject({ code: "access_denied" });
    expect(inUse.store.list().map(({ id }) => id)).toEqual([older.id]);
    expect(inUse.store.require("app", "key-a").id).toBe(older.id);
    expectNothingLeft(inUse);

    const misspelt = importImage(
      context,
      { path },
      {
        owner: null,
        names: [{ owner: null, name: "Bad Name", tag: "x" }],
        onProgress: ({ doneBytes }) => expect(doneBytes).toBe(0),
      },
    );
    await expect(misspelt).rejects.toMatchObject({ code: "invalid_argument" });
  });

  test("is not packed for an archive whose name in the container makes no sense", async () => {
    const context = contextOf(inUse);
    const record = await importImage(context, { path: makeImage([tinyLayer()]).directory }, { owner: null });
    const to = { kind: "container", container: "c", path: "/tmp", socketPath: "/nowhere.sock" } as const;
    for (const fileName of ["with blank.tar", "", "directory/", "ä.tar", "x".repeat(101)]) {
      const delivered = deliverImage(context, record, {
        to,
        fileName,
        onProgress: () => expect.fail("something was done"),
      });
      await expect(delivered).rejects.toMatchObject({ code: "invalid_argument", details: { field: "fileName" } });
    }
    expectNothingLeft(inUse);
  });

  test("is written beside what others have left, which is theirs", async () => {
    const context = contextOf(inUse);
    const record = await importImage(context, { path: makeImage([tinyLayer()]).directory }, { owner: null });
    const directory = temporaryDirectory();
    const [ours, theirs] = [1, 2].map((number) => join(directory, `.holdfast-export.1.1.00000000000${number}.1`));
    for (const path of [ours as string, theirs as string]) {
      mkdirSync(path);
      writeFileSync(join(path, "file"), "x");
    }
    chownSync(theirs as string, 4242, 4242);
    await exportImage(context, record, { format: "oci", to: { path: join(directory, "out.tar") } });
    expect(existsSync(ours as string)).toBe(false);
    expect(readdirSync(theirs as string)).toEqual(["file"]);
  });
});

test("two layers that would each fit, but not together, do not fill the disk", async () => {
  const stateDirectory = temporaryDirectory();
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=320m", "tmpfs", stateDirectory]);
  const engine = await BubblewrapEngine.open({ stateDirectory, pool: "dir" });
  onTestFinished(async () => {
    await engine.close({ sandboxes: "kill" });
    execFileSync("umount", [stateDirectory]);
  });
  const store = openImageStore({ stateDirectory, layers: engine.layers });
  const zeros = Buffer.alloc(220 * MIB);
  const { directory: path } = makeImage([makeLayer({ one: zeros }), makeLayer({ two: zeros })], {
    compression: "gzip",
  });
  const bomb = importImage(contextOf({ engine, store, stateDirectory } as never), { path }, { owner: null });
  await expect(bomb).rejects.toMatchObject({
    code: "no_space",
    message: expect.stringContaining("the rest of the image needs"),
    details: { neededBytes: expect.any(Number), freeBytes: expect.toSatisfy((bytes: number) => bytes > 0) },
  });
  expect(engine.layers.list()).toEqual([]);
  expect(readdirSync(join(stateDirectory, "disks/layers"))).toEqual([]);
});

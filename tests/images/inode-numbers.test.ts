/**
 * What an overlay shows as inode numbers are those of its layers. Two files with one number are one file to tar, cp, find, ld.so
 * and many more; so no two files in a sandbox may share one, whichever layers they are from.
 */
import { exportImage, type ImageRecord, importImage, planSandbox, takeSnapshot } from "@holdfast/images";
import { afterEach, describe, expect, it } from "vitest";
import { patienceMs } from "../helpers/scale.js";
import { shell } from "../helpers/use-engine.js";
import { temporaryDirectory } from "../helpers/use-images.js";
import { imagesContext, recipe, run, SMALL_BUILDER, useBuilds } from "./build-helper.js";

const MIB = 1024 * 1024;
const FILES = 40;
const MAKE_FILES = (name: string) =>
  `mkdir -p /files && for i in $(seq ${FILES}); do echo ${name} >/files/${name}$i; done`;

describe.each(["btrfs", "dir"] as const)("on a %s pool", (pool) => {
  const use = useBuilds({ pool });
  afterEach(() => Promise.all(use.engine.list().map((sandbox) => sandbox.kill("the end of the test"))));
  const limits = { memoryBytes: 64 * MIB, diskBytes: 64 * MIB, pids: 32 };

  /** Numbers of all files in /files, after the sandbox has written some of its own. */
  async function numbersIn(image: ImageRecord): Promise<string[]> {
    const sandbox = await use.engine.create(planSandbox(image, { limits }).spec);
    const made = await shell(sandbox, `${MAKE_FILES("own")}; stat -c '%d:%i' /files/*`);
    expect(made.cause, made.stderr).toEqual({ kind: "exited", code: 0 });
    await sandbox.kill("the test");
    return made.stdout.trim().split("\n");
  }

  function expectDistinct(numbers: readonly string[], layers: number): void {
    expect(numbers).toHaveLength(FILES * layers);
    expect(new Set(numbers).size).toBe(numbers.length);
    // They fit into what programs keep them in.
    for (const number of numbers) expect(Number(number.split(":")[1])).toBeLessThan(2 ** 32);
  }

  it("files of different steps, and those of the sandbox, have numbers of their own", async () => {
    const image = await use.build([run(MAKE_FILES("a")), run(MAKE_FILES("b")), run(MAKE_FILES("c"))]);
    expectDistinct(await numbersIn(image), 4);
  });

  it("tar and cp take no file for another", async () => {
    const image = await use.build([run("mkdir /app; echo hi >/app/a.txt")]);
    const sandbox = await use.engine.create(planSandbox(image, { limits }).spec);
    const { stdout } = await shell(
      sandbox,
      "for i in 1 2 3 4 5 6 7 8; do tar cf /tmp/x$i.tar /app 2>/dev/null; tar tf /tmp/x$i.tar | grep -c a.txt; touch /tmp/b$i; cp /app/a.txt /tmp/b$i && cat /tmp/b$i; done",
    );
    expect(stdout).toBe("1\nhi\n".repeat(8));
  });

  it("layers that were made at the same time, and meet in one image, have too", {
    timeout: patienceMs(60_000),
  }, async () => {
    const [a, b] = await Promise.all([use.build([run(MAKE_FILES("a"))]), use.build([run(MAKE_FILES("b"))])]);
    const layersOf = (image: ImageRecord) => image.layers.filter((layer) => !use.tiny.layers.includes(layer));
    const both = { ...a, layers: [...layersOf(a), ...layersOf(b), ...use.tiny.layers] };
    expectDistinct(await numbersIn(both), 3);
  });

  it("so have those of an image that was imported, and of what is built on it", {
    timeout: patienceMs(60_000),
  }, async () => {
    const image = await use.build([run(MAKE_FILES("a")), run(MAKE_FILES("b"))]);
    const archive = `${temporaryDirectory()}/image.tar`;
    await exportImage(imagesContext(use), image, { format: "oci", to: { path: archive } });
    await use.store.remove(image.id);
    await use.store.prune({ all: true });
    const imported = await importImage(
      imagesContext(use),
      { path: archive },
      { owner: null, names: [{ owner: null, name: "imported", tag: "latest" }] },
    );
    expectDistinct(await numbersIn(imported), 3);
    const above = await use.build([], {
      recipe: recipe([run(MAKE_FILES("c"))], { base: { kind: "image", name: "imported" } }),
    });
    expectDistinct(await numbersIn(above), 4);
  });

  it("so have those of what is built on a snapshot", { timeout: patienceMs(60_000) }, async () => {
    const image = await use.build([run(MAKE_FILES("a"))]);
    const sandbox = await use.engine.create(planSandbox(image, { limits }).spec);
    await shell(sandbox, MAKE_FILES("b"));
    const names = [{ owner: null, name: "kept", tag: "latest" }];
    const taken = await takeSnapshot(imagesContext(use), sandbox, { owner: null, parent: image, names });
    expectDistinct(await numbersIn(taken.image), 3);
    const above = await use.build([], {
      recipe: recipe([run(MAKE_FILES("c"))], { base: { kind: "image", name: "kept" } }),
      builder: SMALL_BUILDER,
    });
    expectDistinct(await numbersIn(above), 4);
  });
});

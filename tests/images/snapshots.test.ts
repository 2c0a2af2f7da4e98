/** Snapshots and forks from end to end: what they hold, what they stand on, and what may be removed meanwhile. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { Sandbox } from "@holdfast/engine";
import {
  exportImage,
  type ImageName,
  type ImageRecord,
  importImage,
  planSandbox,
  prepareFork,
  takeSnapshot,
} from "@holdfast/images";
import { afterEach, describe, expect, it } from "vitest";
import { fitting } from "../helpers/needs-host.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { shell } from "../helpers/use-engine.js";
import { temporaryDirectory } from "../helpers/use-images.js";
import { imagesContext, recipe, run, SMALL_BUILDER, useBuilds } from "./build-helper.js";

const MIB = 1024 * 1024;
const GENERATIONS = scaled(20, 5);
const LIMITS = { memoryBytes: 64 * MIB, diskBytes: 64 * MIB, pids: 16 };
/** Beside the one that they are forks of, and the one that is made of one of them. */
const FORKS = fitting(scaled(14, 6), LIMITS) - 2;

async function said(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout, stderr, cause } = await shell(sandbox, script);
  expect(cause, `${script}: ${stderr}`).toEqual({ kind: "exited", code: 0 });
  return stdout;
}

describe.each(["btrfs", "dir"] as const)("on a %s pool", (pool) => {
  const use = useBuilds({ pool });
  afterEach(() => Promise.all(use.engine.list().map((sandbox) => sandbox.kill("the end of the test"))));
  const small = { limits: LIMITS };
  const createFrom = (image: ImageRecord) => use.engine.create(planSandbox(image, small).spec);
  const snapshot = (sandbox: Sandbox, parent?: ImageRecord) =>
    takeSnapshot(imagesContext(use), sandbox, { owner: null, parent });

  async function prepared(): Promise<ImageRecord> {
    return use.build([
      { kind: "env", variables: { FROM: "the image" } },
      { kind: "user", name: "user" },
      { kind: "workdir", path: "/home/user/work" },
      run("echo built >built; mkdir dir; echo old >dir/old"),
    ]);
  }

  it("a snapshot holds the files as of its moment, and how the image was run", {
    timeout: patienceMs(60_000),
  }, async () => {
    const parent = await prepared();
    const original = await createFrom(parent);
    await said(
      original,
      "echo x >x; chmod 640 x; ln -s x link; rm -r dir; mkdir dir; echo new >dir/new; rm built; mkfifo pipe",
    );
    const background = await original.start({ argv: ["/bin/sh", "-c", "sleep 1000"] });
    const { image, report, holds } = await snapshot(original, parent);
    expect(holds).toBe("files");
    expect(report.method).toBe(pool === "btrfs" ? "clone" : "copy");
    expect(image).toMatchObject({
      kind: "snapshot",
      parent: parent.id,
      fromSandbox: original.id,
      layers: parent.layers,
      below: null,
      disk: report.id,
      floor: parent.floor,
      config: parent.config,
      limits: { memoryBytes: LIMITS.memoryBytes, diskBytes: LIMITS.diskBytes },
    });
    // What comes after it is the original's own.
    await said(original, "echo later >x; echo later >later");
    const copy = await createFrom(image);
    expect(
      await said(
        copy,
        "echo $FROM; id -un; pwd; cat x; stat -c '%a %U' x; readlink link; ls dir; ls; ps | grep -c '[s]leep 1000'; true",
      ),
    ).toBe("the image\nuser\n/home/user/work\nx\n640 user\nx\nnew\ndir\nlink\npipe\nx\n0\n");
    await said(copy, "echo copy >x");
    expect(await said(original, "cat x later; ps | grep -c '[s]leep 1000'")).toBe("later\nlater\n1\n");
    background.detach();
    await Promise.all([original.kill("the test"), copy.kill("the test")]);
    expect(await said(await createFrom(image), "cat x")).toBe("x\n");
  });

  it("a snapshot that cannot be called what it was to be called leaves nothing", {
    timeout: patienceMs(60_000),
  }, async () => {
    const parent = await prepared();
    const original = await createFrom(parent);
    const taken = (names: readonly ImageName[]) =>
      takeSnapshot(imagesContext(use), original, { owner: "key-a", parent, names });
    const own: ImageName = { owner: "key-a", name: "snap", tag: "latest" };
    const { image: first } = await taken([own]);
    const [images, layers] = [use.store.list(), use.engine.layers.list()];
    // The operator's name is not theirs to give, and that shows only when the image is there.
    await expect(taken([own, { ...own, owner: null }])).rejects.toMatchObject({ code: "access_denied" });
    await expect(taken([{ ...own, name: "Bad Name" }])).rejects.toMatchObject({ code: "invalid_argument" });
    expect(use.store.list()).toEqual(images);
    expect(use.engine.layers.list().sort()).toEqual(layers.sort());
    expect(use.store.require("snap", "key-a").id).toBe(first.id);
    expect(readdirSync(join(use.store.directory, "claims"))).toEqual([]);
    await use.store.remove(first.id);
  });

  it("snapshots of snapshots stay as deep as the first", { timeout: patienceMs(120_000) }, async () => {
    const first = await prepared();
    let image = first;
    const ids: ImageRecord["id"][] = [];
    for (let generation = 1; generation <= GENERATIONS; generation++) {
      const sandbox = await createFrom(image);
      await said(
        sandbox,
        `echo ${generation} >generation; touch kept-${generation} brief-${generation}; rm -f brief-${generation - 1}`,
      );
      const { image: next } = await snapshot(sandbox, image);
      await sandbox.kill("the test");
      expect(next).toMatchObject({ layers: first.layers, parent: image.id });
      image = next;
      ids.push(next.id);
    }
    const sandbox = await createFrom(image);
    const { spec } = sandbox;
    expect(spec.image).toEqual({ kind: "layers", layers: first.layers });
    expect(await said(sandbox, "cat generation; ls kept-* | wc -l; ls brief-*")).toBe(
      `${GENERATIONS}\n${GENERATIONS}\nbrief-${GENERATIONS}\n`,
    );
    // Each is whole in itself: those before it may go, and nothing else goes with them.
    use.store.setName({ owner: null, name: "last", tag: "latest" }, image.id);
    await use.store.prune({ all: true, unusedForMs: 0 });
    const left = use.store.list().map(({ id }) => id);
    expect(left).toContain(image.id);
    expect(ids.slice(0, -1).filter((id) => left.includes(id))).toEqual([]);
    expect(await said(sandbox, "cat generation; ls kept-* | wc -l; cat built")).toBe(
      `${GENERATIONS}\n${GENERATIONS}\nbuilt\n`,
    );
    expect(await said(await createFrom(image), "cat generation")).toBe(`${GENERATIONS}\n`);
  });

  it("prune takes nothing that a sandbox stands on, running or stopped", { timeout: patienceMs(60_000) }, async () => {
    const parent = await prepared();
    const original = await createFrom(parent);
    await said(original, "echo x >x");
    const { image } = await snapshot(original, parent);
    await original.kill("the test");
    const running = await createFrom(image);
    const stopped = await createFrom(image);
    await stopped.stop("the test");
    await use.store.prune({ all: true, unusedForMs: 0 });
    await expect(use.store.remove(parent.id)).rejects.toMatchObject({
      code: expect.stringMatching(/^image_(in_use|not_found)$/),
    });
    for (const layer of parent.layers) expect(use.engine.layers.has(layer)).toBe(true);
    expect(await said(running, "cat x built")).toBe("x\nbuilt\n");
    const again = await use.engine.boot(stopped.id);
    expect(await said(again, "cat x built")).toBe("x\nbuilt\n");
    await Promise.all([running.kill("the test"), again.kill("the test")]);
    await use.store.prune({ all: true, unusedForMs: 0 });
    expect(use.engine.layers.list()).toEqual(use.tiny.layers);
  });

  it("many forks of a running sandbox are each their own", { timeout: patienceMs(60_000) }, async () => {
    const parent = await prepared();
    const original = await createFrom(parent);
    await said(original, "echo before >x; dd if=/dev/urandom of=data bs=1M count=8 2>/dev/null; rm built");
    const sum = await said(original, "sha256sum data");
    const point = await prepareFork(imagesContext(use), original);
    expect(point.restores).toBe("files");
    await said(original, "echo after >x");
    const forks = await Promise.all(Array.from({ length: FORKS }, () => use.engine.create(point.spec)));
    await point.release();
    expect(use.engine.layers.has(point.report.id)).toBe(false);
    await Promise.all(
      forks.map(async (fork, index) => {
        expect(fork.id).not.toBe(original.id);
        expect(fork.limits).toEqual(original.limits);
        expect(await said(fork, "cat x; sha256sum data; ls built 2>&1 | grep -c No; echo $FROM; pwd")).toBe(
          `before\n${sum}1\nthe image\n/home/user/work\n`,
        );
        await said(fork, `echo ${index} >own; echo changed >>data`);
      }),
    );
    expect(await said(original, "cat x; sha256sum data; ls own 2>&1 | grep -c No")).toBe(`after\n${sum}1\n`);
    expect(await Promise.all(forks.map((fork) => said(fork, "cat own")))).toEqual(
      forks.map((_, index) => `${index}\n`),
    );
    // A fork of a fork, and a snapshot of that.
    const [fork] = forks;
    if (fork === undefined) throw new Error("no forks");
    const { image } = await snapshot(fork, parent);
    expect(await said(await createFrom(image), "cat own")).toBe("0\n");
    expect(readdirSync(join(use.store.directory, "claims"))).toEqual([]);
  });

  it("an image can be built on a snapshot, and leave this host", { timeout: patienceMs(60_000) }, async () => {
    const parent = await prepared();
    const original = await createFrom(parent);
    await said(original, "rm -r dir built; echo x >x");
    const { image } = await snapshot(original, parent);
    await original.kill("the test");
    use.store.setName({ owner: null, name: "snap", tag: "latest" }, image.id);
    const built = await use.build([], {
      recipe: recipe([run("echo on top >top; cat x >>top")], { base: { kind: "image", name: "snap" } }),
      builder: SMALL_BUILDER,
    });
    expect(built.disk).toBeNull();
    // Where layers are subvolumes, a copy of it, with inode numbers to stand on.
    expect(built.layers.slice(2)).toEqual(image.layers);
    expect(built.layers[1] === image.disk).toBe(pool === "dir");
    const path = join(temporaryDirectory(), "snapshot.tar");
    await exportImage(imagesContext(use), built, { format: "oci", to: { path } });
    const imported = await importImage(imagesContext(use), { path }, { owner: "other", names: [] });
    expect(await said(await createFrom(imported), "ls; cat top")).toBe("top\nx\non top\nx\n");
  });

  it("a snapshot on the host's own programs stays on this host", { timeout: patienceMs(60_000) }, async () => {
    const original = await use.engine.create({ limits: planSandbox(use.tiny, small).spec.limits });
    await said(original, "echo x >/home/user/x");
    const { image } = await snapshot(original);
    expect(image).toMatchObject({ layers: [], below: { kind: "host" }, parent: null });
    expect(await said(await createFrom(image), "cat /home/user/x; id -un")).toBe("x\nuser\n");
    const path = join(temporaryDirectory(), "host.tar");
    await expect(exportImage(imagesContext(use), image, { format: "oci", to: { path } })).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining("lies on the host's own files and cannot leave it"),
    });
    use.store.setName({ owner: null, name: "hosted", tag: "latest" }, image.id);
    const build = await use.start([], { recipe: recipe([run("true")], { base: { kind: "image", name: "hosted" } }) });
    await expect(build.image).rejects.toMatchObject({
      message: expect.stringContaining("which no image can be built on"),
    });
  });
});

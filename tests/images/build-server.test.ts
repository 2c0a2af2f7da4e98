/** Images as users of the SDK meet them: declared in a few lines, built by a real server on the way to a sandbox. */
import { createReadStream, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { BubblewrapEngine } from "@holdfast/engine";
import { exportImage } from "@holdfast/images";
import { type BuildLogLine, Holdfast, HoldfastError, Image, type Sandbox } from "@holdfast/sdk";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { OUR_DIRECTORIES } from "../helpers/leaks.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { openTestImages } from "../helpers/use-images.js";
import { useServer } from "../helpers/use-server.js";
import { imagesContext } from "./build-helper.js";

const MIB = 1024 * 1024;
const CREATES = scaled(50, 8);
const UUID = "cat /proc/sys/kernel/random/uuid | tee /uuid";
const HUNGRY = "head -c 150m /dev/zero | tail -c 150m >/dev/null";
const BUILDER = { memoryMb: 128, diskMb: 200, runtimeMemoryMb: 32, network: "off" } as const;

describe("a server with images", () => {
  const server = useServer();
  let holdfast: Holdfast;
  let sandboxes: Sandbox[] = [];
  const tiny = () => Image.from("tiny").builder(BUILDER);

  beforeAll(async () => {
    holdfast = new Holdfast({ url: server.url, apiKey: server.apiKey });
    const directory = mkdtempSync(OUR_DIRECTORIES);
    try {
      const path = join(directory, "tiny.tar");
      await exportTiny(join(directory, "state"), path);
      await holdfast.images.import(Readable.toWeb(createReadStream(path)) as ReadableStream<Uint8Array>, {
        name: "tiny",
      });
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  }, patienceMs(60_000));

  afterEach(async () => {
    await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
    sandboxes = [];
  });

  async function create(options: Parameters<Holdfast["sandboxes"]["create"]>[0]): Promise<Sandbox> {
    const sandbox = await holdfast.sandboxes.create(options);
    sandboxes.push(sandbox);
    return sandbox;
  }

  /** The image has no bash. */
  const sh = async (sandbox: Sandbox, script: string): Promise<string> =>
    (await sandbox.run(["/bin/sh", "-c", script])).stdout;

  const outputOf = (lines: readonly BuildLogLine[]) =>
    lines.filter(({ stream }) => stream !== "info").map(({ text }) => text);

  it("builds once for however many create at once, and each gets the whole log", {
    timeout: patienceMs(120_000),
  }, async () => {
    const image = tiny().runCommands(UUID, "echo begun; sleep 1; echo over").env({ WHAT: "many" });
    const logs: BuildLogLine[][] = [];
    const ids = new Set<string>();
    const seen = await Promise.all(
      Array.from({ length: CREATES }, async () => {
        const log: BuildLogLine[] = [];
        logs.push(log);
        const sandbox = await create({ image, memoryMb: 32, onBuildLog: (line) => log.push(line) });
        ids.add(sandbox.id);
        const said = await sh(sandbox, "cat /uuid; echo $WHAT");
        // A small host does not carry all of them at once.
        await sandbox.kill();
        return said;
      }),
    );
    const [first] = seen;
    expect(first).toMatch(/^[0-9a-f-]{36}\nmany\n$/);
    expect(new Set(seen).size).toBe(1);
    expect(ids.size).toBe(CREATES);
    for (const log of logs) expect(outputOf(log)).toEqual([first?.split("\n")[0], "begun", "over"]);
    expect((await holdfast.images.list()).filter(({ kind }) => kind === "built")).toHaveLength(1);
    const began = performance.now();
    const again: BuildLogLine[] = [];
    await create({ image, memoryMb: 32, onBuildLog: (line) => again.push(line) });
    expect(outputOf(again)).toEqual([]);
    expect(performance.now() - began).toBeLessThan(patienceMs(1000));
  });

  it("reports what was asked for and what it came to", { timeout: patienceMs(60_000) }, async () => {
    const image = tiny().runCommands("echo small >/small").runtimeMemory(64);
    const less = await create({ image, memoryMb: 32 });
    expect((await less.info()).memory).toEqual({
      requestedBytes: 32 * MIB,
      effectiveBytes: 64 * MIB,
      floorBytes: 64 * MIB,
      reason: "the image was made to start in 64 MiB and in no less",
    });
    await expect(create({ image, memoryMb: 32, strict: true })).rejects.toMatchObject({
      code: "invalid_argument",
      details: { requestedBytes: 32 * MIB, floorBytes: 64 * MIB },
    });
    const more = await create({ image, memoryMb: 300, strict: true });
    expect((await more.info()).memory).toMatchObject({ effectiveBytes: 300 * MIB, reason: null });
    const total = async () => (await more.run(["awk", "/^MemTotal:/ { print $2 / 1024 }", "/proc/meminfo"])).stdout;
    expect(await total()).toBe("300\n");
    await more.resize({ memoryBytes: 128 * MIB });
    expect(await total()).toBe("128\n");
  });

  it("says why a build failed, and finds what was done when it is mended", {
    timeout: patienceMs(60_000),
  }, async () => {
    const image = tiny().runCommands("echo before | tee /before", HUNGRY);
    const error = await create({ image }).then(
      () => undefined,
      (reason: unknown) => reason as HoldfastError,
    );
    expect(error).toBeInstanceOf(HoldfastError);
    expect(error).toMatchObject({
      code: "build_failed",
      message: expect.stringMatching(/^step 2 \(RUN head .*\) ran out of memory: it needed more than 128 MiB/),
      hint: "Give the build more: builder({ memoryMb: 256 }) or --builder-memory 256m.",
      details: { step: "2", cause: { kind: "out_of_memory" }, limitBytes: 128 * MIB, suggestedMemoryMb: 256 },
    });
    const lines: BuildLogLine[] = [];
    const sandbox = await create({
      image: image.builderMemory(256),
      memoryMb: 32,
      onBuildLog: (line) => lines.push(line),
    });
    expect(outputOf(lines)).toEqual([]);
    expect(await sh(sandbox, "cat /before")).toBe("before\n");
  });

  it("lets the next asker finish what a killed one had begun", { timeout: patienceMs(120_000) }, async () => {
    const image = tiny().runCommands(`: killed; ${UUID}`, "echo begun; sleep 3; echo over >/over");
    const lines: BuildLogLine[] = [];
    let begin = (): void => {};
    const begun = new Promise<void>((resolve) => {
      begin = resolve;
    });
    const interrupted = holdfast.images.build(image, {
      onLog: (line) => {
        lines.push(line);
        if (line.text === "begun") begin();
      },
    });
    interrupted.catch(() => undefined);
    await begun;
    await server.kill("SIGKILL");
    await server.restart();
    // Its own build is lost with the process; what it had come to is not.
    await expect(interrupted).rejects.toMatchObject({ code: "build_failed", details: { cause: { kind: "lost" } } });
    const sandbox = await create({ image, memoryMb: 32 });
    expect(await sh(sandbox, "cat /uuid /over")).toBe(`${outputOf(lines)[0]}\nover\n`);
    await sandbox.kill();
    expect(server.sandboxDirectories()).toEqual([]);
  });

  it("stops a build that nobody wants any more", { timeout: patienceMs(60_000) }, async () => {
    const canceled = new AbortController();
    const image = tiny().runCommands("echo begun; sleep 1000");
    const building = holdfast.images.build(image, {
      signal: canceled.signal,
      onLog: ({ text }) => {
        if (text === "begun") canceled.abort();
      },
    });
    await expect(building).rejects.toMatchObject({ code: "canceled" });
    await expect
      .poll(async () => (await holdfast.images.builds())[0]?.state, { timeout: patienceMs(5000) })
      .toBe("canceled");
    expect(server.sandboxDirectories()).toEqual([]);
  });

  it("keeps what a sandbox has become, and makes many of it", { timeout: patienceMs(60_000) }, async () => {
    const image = tiny().workdir("/work").env({ WHAT: "kept" });
    const original = await create({ image, memoryMb: 64 });
    await sh(original, "echo x >x");
    const { image: snapshot, holds } = await original.snapshot();
    expect(holds).toBe("files");
    await sh(original, "echo later >x");
    const forks = await original.fork({ count: 5 });
    sandboxes.push(...forks);
    expect(forks.restored).toBe("files");
    for (const fork of forks) expect(await sh(fork, "cat x; echo $WHAT; pwd")).toBe("later\nkept\n/work\n");
    await Promise.all(forks.map((fork) => fork.kill()));
    const copy = await create({ image: snapshot.id, memoryMb: 64 });
    expect(await sh(copy, "cat x; echo $WHAT; pwd")).toBe("x\nkept\n/work\n");
    const built = await create({
      image: Image.fromSnapshot(snapshot.id).builder(BUILDER).runCommands("cat x >y; echo y >>y"),
      memoryMb: 64,
    });
    expect(await sh(built, "cat y")).toBe("x\ny\n");
    // Its files are the copy's own by now, and what the image was built on is a copy too.
    expect(await holdfast.images.remove(snapshot.id)).toMatchObject({ images: 1, layers: 1 });
    expect(await sh(copy, "cat x")).toBe("x\n");
    expect(await sh(built, "cat x")).toBe("x\n");
  });
});

async function exportTiny(stateDirectory: string, path: string): Promise<void> {
  const engine = await BubblewrapEngine.open({ stateDirectory, pool: "dir" });
  try {
    const { store, addTinyImage } = openTestImages(engine, stateDirectory);
    const image = await addTinyImage();
    await exportImage(imagesContext({ engine, store, stateDirectory }), image, { format: "oci", to: { path } });
    for (const layer of engine.layers.list()) await engine.layers.remove(layer);
  } finally {
    await engine.close({ sandboxes: "kill" });
  }
}

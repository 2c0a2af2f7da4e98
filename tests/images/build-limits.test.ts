/** Builds obey limits as everything does, and say what ended them and what to do about it. */
import { type BuildLogEntry, planSandbox } from "@holdfast/images";
import { describe, expect, it } from "vitest";
import { patienceMs } from "../helpers/scale.js";
import { logOf, MIB, outputOf, recipe, run, SMALL_BUILDER, useBuilds } from "./build-helper.js";

/** Really held: `tail` keeps all of a line that never ends. */
const HUNGRY = "head -c 150m /dev/zero | tail -c 150m >/dev/null";

describe("a build", () => {
  const use = useBuilds();

  it("that needs more memory than it has says so, and passes with more", { timeout: patienceMs(60_000) }, async () => {
    const small = { ...SMALL_BUILDER, memoryMb: 64, runtimeMemoryMb: 32 };
    const failing = await use.start([run("echo before"), run(HUNGRY)], { builder: small });
    await expect(failing.image).rejects.toMatchObject({
      code: "build_failed",
      message: expect.stringMatching(
        /^step 2 \(RUN head .*\) ran out of memory: it needed more than 64 MiB \(peak 6[34](\.\d)? MiB\)$/,
      ),
      hint: "Give the build more: builder({ memoryMb: 128 }) or --builder-memory 128m.",
      details: {
        step: "2",
        cause: { kind: "out_of_memory", scope: "sandbox", limitBytes: 64 * MIB },
        limitBytes: 64 * MIB,
        peakBytes: expect.any(Number),
        suggestedMemoryMb: 128,
        tail: expect.any(Array),
      },
    });
    const build = await use.start([run("echo before"), run(HUNGRY)], { builder: { ...small, memoryMb: 256 } });
    const image = await build.image;
    expect(build.info().steps.map(({ state }) => state)).toEqual(["done", "cached", "done", "done"]);
    expect(build.info().steps[2]?.memoryPeakBytes).toBeGreaterThan(140 * MIB);
    expect(image.floor?.memoryBytes).toBe(32 * MIB);
    const { spec } = planSandbox(image, { limits: { memoryBytes: MIB * 16 } });
    const sandbox = await use.engine.create(spec);
    expect((await sandbox.stats()).memoryLimitBytes).toBe(32 * MIB);
    await sandbox.kill("the test");
  });

  it("tries a step once more with more memory if it may", async () => {
    const builder = { ...SMALL_BUILDER, memoryMb: 100, retryOnOom: true };
    const build = await use.start([run(HUNGRY)], { builder });
    await build.image;
    const texts = (await logOf(build)).map(({ text }) => text);
    expect(texts).toContainEqual(expect.stringMatching(/ran out of memory: .*; trying it once more with 200 MiB$/));
    const tooSmall = await use.start([run(`true; ${HUNGRY}`)], { builder: { ...builder, memoryMb: 40 } });
    await expect(tooSmall.image).rejects.toMatchObject({
      details: { cause: { kind: "out_of_memory" }, limitBytes: 80 * MIB, suggestedMemoryMb: 160 },
    });
  });

  it("warns of a child that was killed for memory in a step that went on", async () => {
    const build = await use.start([run(`(${HUNGRY}) || true; echo went on`)], {
      builder: { ...SMALL_BUILDER, memoryMb: 64 },
    });
    await build.image;
    expect((await logOf(build)).map(({ text }) => text)).toContainEqual(
      expect.stringMatching(
        /^warning: On the way, \d+ process(es)? w(as|ere) killed for memory: .* Try --builder-memory 128m\.$/,
      ),
    );
  });

  it("that fills its disk says so", async () => {
    const builder = { ...SMALL_BUILDER, diskMb: 40 };
    const fill = (name: string, mib: number) => run(`dd if=/dev/urandom of=/${name} bs=1M count=${mib}`);
    const build = await use.start([fill("a", 20), fill("b", 30)], { builder });
    await expect(build.image).rejects.toMatchObject({
      code: "build_failed",
      message: expect.stringMatching(
        /^step 2 \(RUN dd .*\) ran out of disk: it had [\d.]+ MiB left of the build's 40 MiB$/,
      ),
      hint: "Give the build more: builder({ diskMb: 80 }).",
      details: { step: "2", cause: { kind: "out_of_disk" } },
    });
    await use.build([fill("a", 20), fill("b", 30)], { builder: { ...builder, diskMb: 80 } });
  });

  it("that takes too long is stopped", async () => {
    const began = Date.now();
    const build = await use.start([run("echo begun; sleep 1000")], { builder: { ...SMALL_BUILDER, timeoutS: 2 } });
    await expect(build.image).rejects.toMatchObject({
      code: "build_failed",
      message: "step 1 (RUN echo begun; sleep 1000) was stopped: the build's 2 s were over",
      details: {
        cause: { kind: "timed_out", limitMs: 2000 },
        tail: expect.arrayContaining([expect.objectContaining({ text: "begun" })]),
      },
    });
    expect(Date.now() - began).toBeLessThan(patienceMs(12_000));
  });

  it("does not wait for what a step has left in the background", async () => {
    const began = Date.now();
    const build = await use.start([run("sleep 1000 & echo done >/file; echo said")]);
    const image = await build.image;
    expect(Date.now() - began).toBeLessThan(patienceMs(10_000));
    expect(await outputOf(build)).toEqual(["said"]);
    expect((await use.inside(image, "cat /file; ps | grep -c 'sleep 100[0]'")).stdout).toBe("done\n0\n");
  });

  it("gives a step no input to wait for", async () => {
    const build = await use.start([run("cat; read line || echo none")]);
    await build.image;
    expect(await outputOf(build)).toEqual(["none"]);
  });

  it("turns whatever is written into lines", async () => {
    const script = String.raw`printf 'a\r\nten\rtwenty\rhundred\n\377\376 bad\n'; head -c 40000 /dev/zero | tr '\0' x; echo; printf 'no end'`;
    const build = await use.start([run(script)]);
    await build.image;
    const lines = await outputOf(build);
    expect(lines.slice(0, 3)).toEqual(["a", "hundred", "\uFFFD\uFFFD bad"]);
    expect(lines.slice(3, 6).map(({ length }) => length)).toEqual([16_384, 16_384, 40_000 - 2 * 16_384]);
    expect(lines.slice(6)).toEqual(["no end"]);
  });

  it("keeps the beginning and the end of a log without end", { timeout: patienceMs(120_000) }, async () => {
    const build = await use.start([run("seq 1 1000000; echo last")]);
    await build.image;
    const entries: BuildLogEntry[] = await logOf(build);
    expect(entries.some(({ text }) => text === "1")).toBe(true);
    expect(entries.some(({ text }) => text === "last")).toBe(true);
    const gap = entries.find(({ text }) => text.endsWith("not kept: the log is too long]"));
    expect(gap).toBeDefined();
    expect(JSON.stringify(entries).length).toBeLessThan(66 * MIB);
  });
});

describe("finalizing", () => {
  const use = useBuilds();
  const server = "while true; do echo hi | nc -l -p 8000; done";

  it("starts the image in its floor, waits until it is ready, and measures", async () => {
    const build = await use.start([], {
      recipe: recipe([], {
        start: { command: `echo coming up; sleep 0.5; ${server}`, readyWhen: { kind: "port", port: 8000 } },
      }),
    });
    const image = await build.image;
    expect(image.config.start?.command).toContain("nc -l");
    expect(image.floor).toEqual({
      memoryBytes: 64 * MIB,
      startPeakBytes: expect.any(Number),
      readyMs: expect.any(Number),
    });
    expect(image.floor?.readyMs).toBeGreaterThan(400);
    expect(image.floor?.startPeakBytes).toBeLessThan(64 * MIB);
    expect(await outputOf(build)).toContain("coming up");
  });

  it.each([
    ["listens", server, true],
    ["does not", "sleep 1000", false],
  ])("notes after a wait of so many seconds whether something %s", async (_, command, listens) => {
    const start = { command, readyWhen: { kind: "seconds", seconds: 0.5 } } as const;
    const image = await use.build([], { recipe: recipe([], { start }) });
    expect(image.floor?.readyMs).toBeGreaterThanOrEqual(500);
    expect(image.floor?.listens).toBe(listens);
  });

  it("passes the start command of a base on", async () => {
    const start = { command: "sleep 1000", readyWhen: { kind: "command", command: "true" } } as const;
    const base = await use.build([], { recipe: recipe([], { start }) });
    use.store.setName({ owner: null, name: "service", tag: "latest" }, base.id);
    const image = await use.build([], {
      recipe: recipe([run("echo x >/x")], { base: { kind: "image", name: "service" } }),
    });
    expect(image.config.start).toEqual(start);
    expect(image.floor?.readyMs).not.toBeNull();
  });

  it("fails if the start needs more than the floor, with the next size", async () => {
    const start = { command: `${HUNGRY}; exit 1`, readyWhen: { kind: "port", port: 8000 } } as const;
    const build = await use.start([run("echo x >/x")], { recipe: recipe([run("echo x >/x")], { start }) });
    await expect(build.image).rejects.toMatchObject({
      code: "build_failed",
      message: expect.stringMatching(
        /^the image cannot start in 64 MiB: .* ran out of memory: it needed more than 64 MiB/,
      ),
      hint: "Give it more: builder({ runtimeMemoryMb: 128 }) or --runtime-memory 128m.",
      details: { step: "finalize", cause: { kind: "out_of_memory" }, limitBytes: 64 * MIB, suggestedMemoryMb: 128 },
    });
    expect(build.info().steps.at(-1)).toMatchObject({ step: "finalize", state: "failed" });
    expect(use.store.list()).toEqual([use.tiny]);
  });

  it("is tried with a higher floor by those who have waited for one that was too low", {
    timeout: patienceMs(60_000),
  }, async () => {
    const steps = [run("sleep 1")];
    const start = { command: `${HUNGRY} && sleep 100`, readyWhen: { kind: "seconds", seconds: 2 } } as const;
    const [low, high] = await Promise.all(
      [64, 250].map((runtimeMemoryMb) =>
        use.start([], { recipe: recipe(steps, { start }), builder: { ...SMALL_BUILDER, runtimeMemoryMb } }),
      ),
    );
    await expect(low?.image).rejects.toMatchObject({ details: { step: "finalize" } });
    expect((await high?.image)?.floor?.memoryBytes).toBe(250 * MIB);
  });

  it("fails if the start command ends, with its last words", async () => {
    const start = { command: "echo no config >&2; exit 5", readyWhen: { kind: "port", port: 8000 } } as const;
    const build = await use.start([], { recipe: recipe([], { start }) });
    await expect(build.image).rejects.toMatchObject({
      message: expect.stringContaining("ended before it was ready"),
      details: { step: "finalize", cause: { kind: "exited", code: 5 } },
    });
    expect(await outputOf(build)).toContain("no config");
  });
});

describe("a build on a pool that cannot refuse a write", () => {
  const use = useBuilds({ pool: "dir" });

  it("works the same, and a full disk ends it", async () => {
    const image = await use.build([run("echo x >/x"), run("rm /bin/nc && mkdir /y")]);
    expect((await use.inside(image, "cat /x; ls -d /y; ls /bin/nc 2>&1")).stdout).toBe(
      "x\n/y\nls: /bin/nc: No such file or directory\n",
    );
    const fill = await use.start([run("dd if=/dev/zero of=/file bs=1M count=100; sleep 60")], {
      builder: { ...SMALL_BUILDER, diskMb: 40 },
    });
    await expect(fill.image).rejects.toMatchObject({ details: { cause: { kind: "out_of_disk" } } });
  });
});

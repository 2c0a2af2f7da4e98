/** Memory of builds and of what they lead to: what was asked for, what it came to, and what to do if it was too little. */
import { GUEST_SHARE } from "@holdfast/engine";
import { type Build, type ImageRecord, planSandbox, startImage } from "@holdfast/images";
import { HoldfastError } from "@holdfast/protocol";
import type { StartCommand } from "@holdfast/recipe";
import { describe, expect, it } from "vitest";
import { lacksHost } from "../helpers/needs-host.js";
import { patienceMs } from "../helpers/scale.js";
import { shell } from "../helpers/use-engine.js";
import { useBase } from "./base-helper.js";
import { hold, run, said } from "./matrix-kinds.js";

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;
/** Held by the start command for as long as it runs. */
const server = (mb: number): StartCommand => ({
  command: `exec python3 -c "held = b'x' * (${mb} << 20); import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=8000)"`,
  readyWhen: { kind: "port", port: 8000 },
});

async function failureOf(build: Build): Promise<HoldfastError> {
  return build.image.then(
    () => {
      throw new Error("the build was expected to fail");
    },
    (reason: unknown) => HoldfastError.from(reason),
  );
}

const texts = async (build: Build): Promise<string[]> => {
  const all: string[] = [];
  for await (const { text } of build.log()) all.push(text);
  return all;
};

const use = useBase();

describe.skipIf(lacksHost({ memoryMb: 4096, why: "a build of 4 GiB" }))("a build that needs 2 GiB", () => {
  const steps = [run("echo before > /home/user/before"), run(`${hold(1900)} > /home/user/held`)];
  let image: ImageRecord;

  it("fails with 1 GiB, and says why, where, and what to try", { timeout: patienceMs(60_000) }, async () => {
    const error = await failureOf(await use.start(steps, { builder: { memoryMb: 1024, runtimeMemoryMb: 256 } }));
    expect(error).toMatchObject({
      code: "build_failed",
      message: expect.stringMatching(
        /^step 2 \(RUN python3 .*\) ran out of memory: it needed more than 1 GiB \(peak .*\)$/s,
      ),
      hint: "Give the build more: builder({ memoryMb: 2048 }) or --builder-memory 2g.",
      details: {
        step: "2",
        cause: { kind: "out_of_memory", scope: "sandbox", limitBytes: GIB },
        limitBytes: GIB,
        suggestedMemoryMb: 2048,
      },
    });
    expect(error.details.peakBytes).toBeGreaterThan(0.95 * GIB);
    expect(use.images.store.list()).toEqual([use.base]);
  });

  it("passes with 4 GiB, and runs with its floor", { timeout: patienceMs(60_000) }, async () => {
    const build = await use.start(steps, { builder: { memoryMb: 4096, runtimeMemoryMb: 256 } });
    image = await build.image;
    // What had been done before it failed is not done again.
    expect(build.info().steps.map(({ state }) => state)).toEqual(["done", "cached", "done", "done"]);
    expect(build.info().steps[2]?.memoryPeakBytes).toBeGreaterThan(1900 * MIB);
    const sandbox = await use.create(image, { limits: { memoryBytes: 256 * MIB } });
    expect((await sandbox.stats()).memoryLimitBytes).toBe(256 * MIB);
    expect(await said(sandbox, "cat ~/before ~/held")).toBe("before\n1900\n");
    const { cause } = await shell(sandbox, `exec ${hold(300)}`);
    expect(cause).toMatchObject({ kind: "out_of_memory", limitBytes: 256 * MIB });
  });

  it("runs with more, and is moved while it runs", { timeout: patienceMs(60_000) }, async () => {
    const { spec, memory } = planSandbox(image, { limits: { memoryBytes: 100 * MIB } });
    expect(memory).toEqual({
      requestedBytes: 100 * MIB,
      effectiveBytes: 256 * MIB,
      floorBytes: 256 * MIB,
      reason: "the image was made to start in 256 MiB and in no less",
    });
    const sandbox = await use.engine.create(spec);
    const total = () => said(sandbox, "awk '/^MemTotal:/ { print $2 / 1024 }' /proc/meminfo");
    expect(await total()).toBe("256\n");
    await sandbox.resize({ memoryBytes: 2 * GIB });
    expect(await total()).toBe("2048\n");
    expect(await said(sandbox, hold(1500))).toBe("1500\n");
    await sandbox.resize({ memoryBytes: 512 * MIB });
    expect(await total()).toBe("512\n");
    expect((await shell(sandbox, `exec ${hold(600)}`)).cause).toMatchObject({ kind: "out_of_memory" });
  });

  it("takes what was asked for, or the defaults, or the image's own, in that order", () => {
    const memoryOf = (...args: Parameters<typeof planSandbox>) => planSandbox(...args).memory;
    expect(memoryOf(image)).toMatchObject({ requestedBytes: null, floorBytes: 256 * MIB, reason: null });
    expect(memoryOf(image, { defaults: { memoryBytes: 300 * MIB } })).toMatchObject({ effectiveBytes: 300 * MIB });
    const own = { ...image, limits: { memoryBytes: 400 * MIB } };
    expect(memoryOf(own, { defaults: { memoryBytes: 300 * MIB } })).toMatchObject({ effectiveBytes: 400 * MIB });
    expect(memoryOf(own, { limits: { memoryBytes: 8 * GIB } })).toEqual({
      requestedBytes: 8 * GIB,
      effectiveBytes: 8 * GIB,
      floorBytes: 256 * MIB,
      reason: null,
    });
    // A default that is too small is nobody's request, and no error even for the strict.
    expect(memoryOf(image, { defaults: { memoryBytes: 64 * MIB }, strict: true })).toMatchObject({
      requestedBytes: null,
      effectiveBytes: 256 * MIB,
      reason: expect.any(String),
    });
    expect(() => planSandbox(image, { limits: { memoryBytes: 255 * MIB }, strict: true })).toThrow(
      expect.objectContaining({
        code: "invalid_argument",
        message: expect.stringContaining("255 MiB is too little: the image was made to start in 256 MiB"),
        details: { field: "limits.memoryBytes", requestedBytes: 255 * MIB, floorBytes: 256 * MIB },
      }),
    );
    expect(memoryOf(image, { limits: { memoryBytes: 256 * MIB }, strict: true }).reason).toBeNull();
  });

  it("is tried once more with the next size if it may be", { timeout: patienceMs(60_000) }, async () => {
    const builder = { memoryMb: 1024, runtimeMemoryMb: 256, retryOnOom: true };
    const build = await use.start([run(`${hold(1500)} > /home/user/retried`)], { builder });
    const made = await build.image;
    expect(await texts(build)).toContainEqual(
      expect.stringMatching(/ran out of memory: it needed more than 1 GiB .*; trying it once more with 2 GiB$/s),
    );
    const sandbox = await use.create(made);
    expect(await said(sandbox, "cat ~/retried")).toBe("1500\n");
    // Once, and not until the host has nothing left.
    const error = await failureOf(
      await use.start([run(`: twice; ${hold(700)}`)], { builder: { ...builder, memoryMb: 300 } }),
    );
    expect(error.details).toMatchObject({ limitBytes: 600 * MIB, suggestedMemoryMb: 1200 });
  });

  it("is refused more than the host has, before anything runs", async () => {
    const { capacity } = await use.engine.budget();
    const most = Math.floor((capacity.memoryBytes - GUEST_SHARE.memoryBytes) / MIB);
    await expect(use.start(steps, { builder: { memoryMb: most + 1 } })).rejects.toMatchObject({
      code: "invalid_argument",
      message: `builder.memoryMb: ${most + 1} MiB were asked for, and this host has ${most} MiB of memory to give`,
      hint: `Ask for at most ${most} MiB, or build on a larger host.`,
    });
    await expect(use.start(steps, { builder: { runtimeMemoryMb: most + 1 } })).rejects.toMatchObject({
      details: { field: "builder.runtimeMemoryMb", most },
    });
  });

  it("has 4 GiB and 1 GiB to start in if nobody says otherwise", { timeout: patienceMs(60_000) }, async () => {
    const { memoryAvailableBytes } = await use.engine.capacity();
    const build = await use.start([run(`: default; ${hold(1000)} > /home/user/held`)]);
    const made = await build.image;
    if (memoryAvailableBytes > 5 * GIB) {
      expect(await texts(build)).toContainEqual(expect.stringMatching(/^building with 512 MiB to 4 GiB of memory, /));
    }
    expect(made.floor).toEqual({ memoryBytes: GIB, startPeakBytes: null, readyMs: null });
  });
});

describe("the start of an image", () => {
  let image: ImageRecord;

  it("is proved in its floor, and measured", { timeout: patienceMs(60_000) }, async () => {
    const build = await use.start([], { more: { start: server(200) }, builder: { runtimeMemoryMb: 512 } });
    image = await build.image;
    expect(image.floor?.memoryBytes).toBe(512 * MIB);
    expect(image.floor?.startPeakBytes).toBeGreaterThan(200 * MIB);
    expect(image.floor?.startPeakBytes).toBeLessThan(512 * MIB);
    expect(image.floor?.readyMs).toBeGreaterThan(0);
    const sandbox = await use.create(image, { limits: { memoryBytes: 512 * MIB } });
    if (image.config.start === null) throw new Error("the image has nothing to start");
    await startImage(sandbox, image.config.start);
    expect(await said(sandbox, "curl -s -o /dev/null -w '%{http_code}' http://localhost:8000/")).toBe("200");
  });

  it("fails in a floor that is too small, with the next size, and passes with that", {
    timeout: patienceMs(60_000),
  }, async () => {
    const order = { more: { start: server(300) } };
    const error = await failureOf(await use.start([], { ...order, builder: { runtimeMemoryMb: 256 } }));
    expect(error).toMatchObject({
      code: "build_failed",
      message: expect.stringMatching(
        /^the image cannot start in 256 MiB: .* ran out of memory: it needed more than 256 MiB/,
      ),
      hint: "Give it more: builder({ runtimeMemoryMb: 512 }) or --runtime-memory 512m.",
      details: { step: "finalize", cause: { kind: "out_of_memory" }, limitBytes: 256 * MIB, suggestedMemoryMb: 512 },
    });
    const build = await use.start([], { ...order, builder: { runtimeMemoryMb: 512 } });
    expect((await build.image).floor?.memoryBytes).toBe(512 * MIB);
  });

  it.each([
    ["a child that is started again and again", "while true; do $(hungry); sleep 0.2; done"],
    ["one in the background", "$(hungry) & exec sleep 1000"],
  ])("that loses %s to its floor says so", { timeout: patienceMs(60_000) }, async (_what, script) => {
    const command = script.replace("$(hungry)", `python3 -c "b'x' * (300 << 20); import time; time.sleep(1000)"`);
    const start = { command, readyWhen: { kind: "port", port: 8000 } } as const;
    const build = await use.start([], { more: { start }, builder: { runtimeMemoryMb: 256, timeoutS: 5 } });
    const error = await failureOf(build);
    expect(error).toMatchObject({
      message: expect.stringMatching(/^the image cannot start in 256 MiB: .* ran out of memory/),
      details: { step: "finalize", cause: { kind: "out_of_memory" }, limitBytes: 256 * MIB, suggestedMemoryMb: 512 },
    });
  });

  it("is proved anew when another floor is asked for, and the image stays the same", {
    timeout: patienceMs(60_000),
  }, async () => {
    const build = await use.start([], { more: { start: server(200) }, builder: { runtimeMemoryMb: 1024 } });
    const again = await build.image;
    expect({ ...again, floor: image.floor }).toEqual(image);
    expect(again.floor?.memoryBytes).toBe(GIB);
    expect(planSandbox(again, { limits: { memoryBytes: 512 * MIB } }).memory).toMatchObject({ effectiveBytes: GIB });
  });
});

const lacksNext = lacksHost({ memoryMb: 2048, why: "the next size is suggested where there is that much" });
it.skipIf(lacksNext)(
  "a step grows from where it starts as far as it may, and no further",
  {
    timeout: patienceMs(60_000),
  },
  async () => {
    const builder = { memoryStartMb: 256, memoryMb: 1024, runtimeMemoryMb: 256 };
    const build = await use.start([run(`${hold(600)} > /home/user/held`)], { builder });
    await build.image;
    expect(build.info().steps[1]?.memoryPeakBytes).toBeGreaterThan(600 * MIB);
    const error = await failureOf(await use.start([run(`${hold(1200)} > /home/user/held`)], { builder }));
    expect(error.details).toMatchObject({
      cause: { kind: "out_of_memory", limitBytes: GIB, limitHistory: expect.any(Array) },
      suggestedMemoryMb: 2048,
    });
  },
);

/** Images that are moved by processes of their own: killed in the middle, and measured. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { BubblewrapEngine } from "@holdfast/engine";
import type { ImageRecord } from "@holdfast/images";
import { afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { pullImage } from "../../packages/images/src/registry/pull.js";
import type { PushReport } from "../../packages/images/src/registry/push.js";
import { runScript, type ScriptProcess } from "../helpers/built-engine.js";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { forgiveZombies } from "../helpers/processes.js";
import { startProxy, startRegistry } from "../helpers/registry.js";
import {
  contextOf,
  expectNothingLeft,
  MIB,
  makeImage,
  randomLayer,
  skopeoPush,
  TAR_PROGRAM,
} from "../helpers/registry-images.js";
import { patienceMs } from "../helpers/scale.js";
import { buildImages, openTestImages, type TestImages } from "../helpers/use-images.js";

beforeAll(buildImages, patienceMs(60_000));

const inUse = {} as TestImages & { readonly engine: BubblewrapEngine; readonly stateDirectory: string };
let before: Inventory;

beforeEach(async () => {
  before = takeInventory();
  const stateDirectory = mkdtempSync(OUR_DIRECTORIES);
  const engine = await BubblewrapEngine.open({ stateDirectory, pool: "dir" });
  Object.assign(inUse, { engine, stateDirectory, ...openTestImages(engine, stateDirectory, { graceMs: 0 }) });
});

afterEach(async () => {
  await inUse.engine.close({ sandboxes: "kill" });
  rmSync(inUse.stateDirectory, { recursive: true, force: true });
  // The children of killed processes are nobody's to reap here.
  await assertNoLeaks(forgiveZombies(before));
});

function startMover(job: object, prefix: readonly string[] = []): ScriptProcess {
  const mover = runScript("registry-mover.mjs", [inUse.stateDirectory, TAR_PROGRAM, JSON.stringify(job)], prefix);
  onTestFinished(async () => {
    mover.child.kill("SIGKILL");
    await mover.exited;
  });
  return mover;
}

interface Moved<T> {
  readonly result: T;
  readonly ms: number;
  readonly grownBytes: number;
}

async function untilMoved<T>(mover: ScriptProcess): Promise<Moved<T>> {
  for (;;) {
    const line = await mover.next<Partial<Moved<T>> & { readonly error?: unknown }>();
    if (line.error !== undefined) throw new Error(JSON.stringify(line.error));
    if (line.result !== undefined) return line as Moved<T>;
  }
}

describe("kill -9 in the middle", () => {
  test("of a pull loses only what was not on the disk", async () => {
    const registry = await startRegistry();
    const proxy = await startProxy(registry);
    const image = makeImage([randomLayer(8 * MIB), randomLayer(MIB)]);
    await skopeoPush(image, `${registry.host}/app`, "--preserve-digests");
    const isBig = ({ path }: { readonly path: string }) => path.endsWith(image.blobs[0]?.digest ?? "?");
    proxy.interfere = (exchange) => (isBig(exchange) ? { kind: "stall-answer", afterBytes: 4 * MIB } : undefined);
    const partial = join(inUse.store.directory, "scratch/partial");
    const mover = startMover({ do: "pull", reference: `${proxy.host}/app` });
    // The small layer is whole, the big one stands still at 4 MiB.
    const sizes = () =>
      existsSync(partial)
        ? readdirSync(partial)
            .map((name) => statSync(join(partial, name)).size)
            .sort((left, right) => left - right)
        : [];
    const small = image.blobs[1]?.content.length ?? 0;
    await expect.poll(sizes, { timeout: patienceMs(20_000) }).toEqual([small, 4 * MIB]);
    for (const name of readdirSync(partial)) expect(name).toMatch(/^[0-9a-f]{64}\.\d+\.\d+\./);
    mover.child.kill("SIGKILL");
    await mover.exited;
    await inUse.engine.sweep();
    await inUse.store.recover();
    await inUse.store.prune({ all: true });
    expect(inUse.store.list()).toEqual([]);
    expect(inUse.engine.layers.list()).toEqual([]);

    proxy.interfere = () => undefined;
    proxy.exchanges.length = 0;
    const record = await pullImage(contextOf(inUse), `${proxy.host}/app`, { owner: null });
    expect(record.layers).toHaveLength(2);
    const fetched = proxy.exchanges.filter(({ path }) => image.blobs.some(({ digest }) => path.endsWith(digest)));
    expect(fetched.map(({ headers }) => headers.range)).toEqual([`bytes=${4 * MIB}-`]);
    expectNothingLeft(inUse);
  });

  test("of a push leaves nothing for the next one to stumble over", async () => {
    const registry = await startRegistry();
    const proxy = await startProxy(registry);
    await skopeoPush(makeImage([randomLayer(8 * MIB)]), `${registry.host}/from`, "--dest-decompress");
    const record = await pullImage(contextOf(inUse), `${registry.host}/from`, { owner: null });
    proxy.interfere = ({ method }) => (method === "PATCH" ? { kind: "stall-request", afterBytes: MIB } : undefined);
    const mover = startMover({ do: "push", image: record.id, reference: `${proxy.host}/to` });
    await expect
      .poll(() => proxy.exchanges.some(({ method }) => method === "PATCH"), { timeout: patienceMs(20_000) })
      .toBe(true);
    mover.child.kill("SIGKILL");
    await mover.exited;
    await inUse.store.recover();
    expectNothingLeft(inUse);
    proxy.interfere = () => undefined;
    const again = startMover({ do: "push", image: record.id, reference: `${proxy.host}/to` });
    expect((await untilMoved<PushReport>(again)).result.layers).toMatchObject([{ how: "uploaded" }]);
    await again.exited;
    expectNothingLeft(inUse);
  });
});

test("512 MiB go in and out without growing the process by more than 64 MiB", {
  timeout: patienceMs(180_000),
}, async () => {
  const registry = await startRegistry();
  const size = 512 * MIB;
  await inUse.addImage({
    layers: [
      await inUse.addLayer((directory) => {
        execFileSync("dd", ["if=/dev/urandom", `of=${join(directory, "data")}`, "bs=1M", "count=512", "status=none"]);
      }),
    ],
  });
  const [image] = inUse.store.list();
  const pushed: Record<string, number> = {};
  for (const compression of ["none", "zstd"] as const) {
    const reference = `${registry.host}/big:${compression}`;
    const push = await untilMoved<PushReport>(
      startMover({ do: "push", image: image?.id, reference, options: { compression } }),
    );
    expect(push.result.sentBytes).toBeGreaterThan(size);
    expect(push.grownBytes).toBeLessThan(64 * MIB);
    pushed[`push ${compression}`] = push.ms;
  }
  await inUse.store.remove(image?.id as ImageRecord["id"]);
  for (const compression of ["none", "zstd"] as const) {
    const reference = `${registry.host}/big:${compression}`;
    const pull = await untilMoved<ImageRecord>(startMover({ do: "pull", reference }));
    expect(pull.grownBytes).toBeLessThan(64 * MIB);
    pushed[`pull ${compression}`] = pull.ms;
    await inUse.store.remove(pull.result.id);
  }
  const rates = Object.entries(pushed).map(([name, ms]) => `${name} ${Math.round(512 / (ms / 1000))} MiB/s`);
  console.log(rates.join(", "));
  expectNothingLeft(inUse);
});

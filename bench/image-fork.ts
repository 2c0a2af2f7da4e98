/** A copy of a running sandbox, with what it has written. */
import { rmSync } from "node:fs";
import { join } from "node:path";
import type { Sandbox } from "@holdfast/engine";
import { type Images, prepareFork } from "@holdfast/images";
import { type Bench, createRow, type Figure, type Row, timed } from "./harness.js";
import { sync } from "./image-sources.js";
import { spawnAndWait } from "./processes.js";
import { expectSuccess, limitsWith, runInside } from "./sandboxes.js";
import { sharedImages } from "./tiny-image.js";

const MIB = 1024 * 1024;
const GOAL_MS = 100;
const DATA = "/root/data";
const FILES = 8;

interface Times {
  readonly sync: number[];
  readonly snapshot: number[];
  /** Of the snapshot. */
  readonly frozen: number[];
  readonly create: number[];
  readonly fork: number[];
  readonly copy: number[];
}

const noTimes = (): Times => ({ sync: [], snapshot: [], frozen: [], create: [], fork: [], copy: [] });

/** Everything anew, so that there is something to sync each time. */
async function write(sandbox: Sandbox, mib: number): Promise<void> {
  const script = `mkdir -p ${DATA}; for i in $(seq ${FILES}); do head -c $1 /dev/urandom > ${DATA}/$i; done`;
  await expectSuccess(
    runInside(sandbox, ["sh", "-euc", script, "write", String((mib * MIB) / FILES)], { user: "root" }),
  );
}

/** What was written has to be there in the copy, or the time means nothing. */
async function expectSame(sandbox: Sandbox, mib: number): Promise<void> {
  const script = `test "$(cat ${DATA}/* | wc -c)" = $1`;
  await expectSuccess(runInside(sandbox, ["sh", "-euc", script, "check", String(mib * MIB)], { user: "root" }));
}

async function takeTurn(bench: Bench, images: Images, sandbox: Sandbox, mib: number, times: Times): Promise<void> {
  await write(sandbox, mib);
  // A fork syncs by itself, first while the sandbox runs on; done before, that finds nothing to do.
  times.sync.push(await timed(() => sync(join(bench.stateDirectory, "pool"))));
  const start = performance.now();
  const point = await prepareFork(images.context, sandbox);
  const taken = performance.now();
  try {
    if (point.report.method !== "clone") throw new Error("the pool is not btrfs: forks are copies there");
    const copy = await bench.engine.create(point.spec);
    const made = performance.now();
    times.snapshot.push(taken - start);
    times.frozen.push(point.report.frozenMs);
    times.create.push(made - taken);
    times.fork.push(made - start);
    await expectSame(copy, mib);
    await copy.kill("the benchmark");
    // The same files on the same disk, as one would copy them without clones.
    const from = join(images.context.engine.layers.path(point.report.id), DATA);
    const to = join(bench.stateDirectory, "pool", "bench-copy");
    times.copy.push(await timed(() => spawnAndWait(["cp", "-a", "--reflink=never", from, to])));
    rmSync(to, { recursive: true });
  } finally {
    await point.release();
  }
}

export const imageFork: Figure = {
  name: "image-fork",
  title: "A copy of a running sandbox with all that it has written (btrfs)",
  async run(bench): Promise<Row[]> {
    const images = await sharedImages(bench);
    const sizes = bench.quick ? [1, 64] : [1, 1024];
    const limits = limitsWith({ memoryBytes: 1024 * MIB, diskBytes: 4096 * MIB });
    const sandboxes = new Map<number, Sandbox>();
    const times = new Map(sizes.map((mib) => [mib, noTimes()]));
    try {
      for (const mib of sizes) sandboxes.set(mib, await bench.engine.create({ limits }));
      // The first of each fills caches and is not counted.
      for (let turn = 0; turn <= (bench.quick ? 2 : 10); turn++) {
        for (const [mib, sandbox] of sandboxes) {
          bench.signal.throwIfAborted();
          await takeTurn(bench, images, sandbox, mib, turn === 0 ? noTimes() : (times.get(mib) ?? noTimes()));
        }
      }
    } finally {
      for (const sandbox of sandboxes.values()) await sandbox.kill("the benchmark");
    }
    const small = times.get(sizes[0] ?? 0)?.fork ?? [];
    return [...times].flatMap(([mib, { sync: synced, snapshot, frozen, create, fork, copy }]) => {
      const what = `${mib} MiB changed: fork, after the sync`;
      return [
        createRow(what, "ms", [fork], {
          goal: { kind: "value", atMost: GOAL_MS },
          peer: { name: "cp -a --reflink=never", rounds: [copy] },
        }),
        ...(fork === small
          ? []
          : [createRow(what, "ms", [fork], { peer: { name: `fork of ${sizes[0]} MiB`, rounds: [small] } })]),
        createRow("  of it: snapshot", "ms", [snapshot]),
        createRow("  of that: standing still", "ms", [frozen]),
        createRow("  of it: create of the copy", "ms", [create]),
        createRow("  the sync before", "ms", [synced]),
      ];
    });
  },
};

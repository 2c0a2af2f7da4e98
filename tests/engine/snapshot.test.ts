/** A snapshot is what a sandbox's files were at one moment, and the sandbox notices nothing but the time. */
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createLayerId, type LayerId, type Sandbox } from "@holdfast/engine";
import { describe, expect, it } from "vitest";
import { openBubblewrap } from "../helpers/open-bubblewrap.js";
import { ready } from "../helpers/output-reader.js";
import { IN_VM, patienceMs, scaled } from "../helpers/scale.js";
import { sandboxesLeftIn, useSharedEngine } from "../helpers/shared-engine.js";
import { collect, MIB, run, SMALL_LIMITS, shell } from "../helpers/use-engine.js";
import { layersLeftIn, removeAfterTest } from "./layer-images.js";

/** Appends numbered records, each on the disk before the next, and says that it runs. */
const RECORDS = `
import os, sys
out = os.open("/home/user/records", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
print("ready", flush=True)
for i in range(100000000):
  os.write(out, b"%09d\\n" % i)
  os.fdatasync(out)
`;
/** Writes without ever syncing: by write, and through a mapping. */
const UNSYNCED = `
import mmap, os
with open("/home/user/written", "wb") as file: file.write(b"w" * 3000000)
with open("/home/user/mapped", "w+b") as file:
  file.truncate(3000000)
  map = mmap.mmap(file.fileno(), 3000000)
  map[:] = b"m" * 3000000
  print("ready", flush=True)
  import time
  time.sleep(1000)
`;

describe.each(["btrfs", "dir"] as const)("a snapshot in a %s pool", (pool) => {
  const use = useSharedEngine(openBubblewrap(pool));
  const newLayer = () => removeAfterTest(() => use.engine, createLayerId());
  const file = (layer: LayerId, path: string) => readFileSync(join(use.engine.layers.path(layer), path));

  async function snapshotOf(sandbox: Sandbox): Promise<LayerId> {
    const layer = newLayer();
    expect(await sandbox.snapshot(layer)).toMatchObject({ id: layer, method: pool === "btrfs" ? "clone" : "copy" });
    return layer;
  }

  it("holds what was written a moment before, by whatever means", async () => {
    const sandbox = await use.create();
    await ready(await sandbox.start({ argv: ["python3", "-c", UNSYNCED] }));
    const layer = await snapshotOf(sandbox);
    expect(file(layer, "home/user/written").equals(Buffer.alloc(3_000_000, "w"))).toBe(true);
    expect(file(layer, "home/user/mapped").equals(Buffer.alloc(3_000_000, "m"))).toBe(true);
    expect(statSync(use.engine.layers.path(layer)).isDirectory()).toBe(true);
  });

  it("holds a beginning without holes of what is being written, and the writing goes on", async () => {
    const sandbox = await use.create();
    const writer = await sandbox.start({ argv: ["python3", "-c", RECORDS] });
    await ready(writer);
    const layers: LayerId[] = [];
    for (let i = 0; i < scaled(8, 3); i++) layers.push(await snapshotOf(sandbox));
    await writer.cancel("the test", { graceMs: 0 });
    const all = (await run(sandbox, ["tail", "-c", "10", "records"])).stdout;
    let last = -1;
    for (const layer of layers) {
      const text = file(layer, "home/user/records").toString();
      const lines = text.split("\n");
      // A record is one write: it is there or it is not.
      expect(lines.pop()).toBe("");
      expect(lines.every((line, i) => Number(line) === i && line.length === 9)).toBe(true);
      expect(lines.length).toBeGreaterThan(last);
      last = lines.length;
    }
    expect(Number(all)).toBeGreaterThanOrEqual(last);
  });

  it("does not hold what belongs to the processes", async () => {
    const sandbox = await use.create();
    const command = await sandbox.start({
      argv: ["head", "-c", "5000000", "/dev/urandom"],
      spillBytes: 8 * MIB,
      whenReaderIsSlow: "drop",
    });
    await command.ended;
    const layer = newLayer();
    const { sizeBytes } = await sandbox.snapshot(layer);
    expect(sizeBytes).toBeLessThan(MIB);
    expect(await use.engine.layers.sizeBytes(layer)).toBe(sizeBytes);
    expect(layersLeftIn(use.stateDirectory)).toEqual([layer]);
    // The output is still there for whoever reads it now.
    expect((await collect(command)).usage.stdoutBytes).toBe(5_000_000);
  });

  it("of a frozen sandbox leaves it frozen, and of a running one running", async () => {
    const sandbox = await use.create();
    await shell(sandbox, "echo text >file");
    await sandbox.freeze();
    const layer = await snapshotOf(sandbox);
    expect(sandbox.state).toBe("frozen");
    expect(file(layer, "home/user/file").toString()).toBe("text\n");
    await sandbox.thaw();
    await snapshotOf(sandbox);
    expect(sandbox.state).toBe("running");
    expect((await run(sandbox, ["cat", "file"])).stdout).toBe("text\n");
  });

  it("may be taken while others are, and while it is frozen and thawed", { timeout: patienceMs(60_000) }, async () => {
    const sandbox = await use.create();
    const writer = await sandbox.start({ argv: ["python3", "-c", RECORDS] });
    await ready(writer);
    const snapshots = [1, 2, 3, 4].map(() => snapshotOf(sandbox));
    const toggles = (async () => {
      for (let i = 0; i < 5; i++) {
        await sandbox.freeze();
        expect(sandbox.state).toBe("frozen");
        await sandbox.thaw();
      }
    })();
    await Promise.all([...snapshots, toggles]);
    await sandbox.freeze();
    await sandbox.thaw();
    expect(sandbox.state).toBe("running");
    expect((await run(sandbox, ["echo", "well"])).stdout).toBe("well\n");
    const count = async () => (await sandbox.files.stat("/home/user/records")).sizeBytes;
    const before = await count();
    await expect.poll(count, { timeout: patienceMs(2000) }).toBeGreaterThan(before);
  });

  it.each(["kill", "stop"] as const)(
    "of a sandbox that ends by a %s meanwhile is whole or nothing",
    { timeout: patienceMs(60_000) },
    async (end) => {
      const seen = { whole: 0, nothing: 0 };
      for (let i = 0; i < scaled(12, 4); i++) {
        const sandbox = await use.create();
        await sandbox.files.write("/home/user/kept", Buffer.alloc(MIB, "x"));
        const layer = newLayer();
        const snapshot = sandbox.snapshot(layer).then(
          () => undefined,
          (error: unknown) => error,
        );
        await sleep(Math.random() * patienceMs(15));
        expect((await sandbox[end]("the test")).cause).toEqual({
          kind: `${end}${end === "stop" ? "p" : ""}ed`,
          by: "the test",
        });
        const failure = await snapshot;
        if (failure === undefined) expect(file(layer, "home/user/kept")).toHaveLength(MIB);
        else expect(failure).toMatchObject({ code: "sandbox_ended" });
        expect(use.engine.layers.has(layer)).toBe(failure === undefined);
        seen[failure === undefined ? "whole" : "nothing"] += 1;
        await expect(sandbox.snapshot(createLayerId())).rejects.toMatchObject({ code: "sandbox_ended" });
        if (end === "stop") await use.engine.discard(sandbox.id);
        expect(sandboxesLeftIn(use.stateDirectory)).toEqual([]);
      }
      expect(layersLeftIn(use.stateDirectory)).toHaveLength(seen.whole);
      console.log(`${seen.whole} whole, ${seen.nothing} nothing`);
    },
  );

  it("needs an id of its own", async () => {
    const sandbox = await use.create();
    const layer = await snapshotOf(sandbox);
    await expect(sandbox.snapshot(layer)).rejects.toMatchObject({ code: "invalid_argument" });
    await expect(sandbox.snapshot("x" as LayerId)).rejects.toMatchObject({ code: "invalid_argument" });
    expect(sandbox.state).toBe("running");
    expect(layersLeftIn(use.stateDirectory)).toEqual([layer]);
  });

  it("of a sandbox whose disk is full is taken, and its copies are as full", async () => {
    const sandbox = await use.create({ limits: { ...SMALL_LIMITS, diskBytes: 16 * MIB } });
    if (pool === "btrfs") await shell(sandbox, "head -c 100M /dev/urandom >big; sync");
    const layer = await snapshotOf(sandbox);
    const copy = await use.create({ disk: { from: layer }, limits: { ...SMALL_LIMITS, diskBytes: 24 * MIB } });
    expect((await shell(copy, "head -c 4M /dev/urandom >more && rm -f big && echo well")).stdout).toBe("well\n");
  });

  it.runIf(pool === "btrfs")(
    "costs the same whatever was written, once that is on the disk",
    { timeout: patienceMs(120_000) },
    async () => {
      const limits = { ...SMALL_LIMITS, memoryBytes: 256 * MIB, diskBytes: 3072 * MIB };
      const sandbox = await use.create({ limits });
      const megabytes = IN_VM ? 128 : 1024;
      const written = await shell(sandbox, `head -c ${megabytes}M /dev/urandom >big && stat -c %s big`);
      expect(written.stdout).toBe(`${megabytes * MIB}\n`);
      const layer = newLayer();
      const report = await sandbox.snapshot(layer);
      console.log(JSON.stringify({ megabytes, ...report }));
      expect(report.sizeBytes).toBeGreaterThanOrEqual(megabytes * MIB);
      // The best of several: what it costs, not what else this machine had to do meanwhile.
      const best = { frozenMs: Number.POSITIVE_INFINITY, createMs: Number.POSITIVE_INFINITY };
      for (let i = 0; i < 3; i++) {
        const { frozenMs, syncMs } = await sandbox.snapshot(newLayer());
        const begin = performance.now();
        const another = await use.create({ limits, disk: { from: layer } });
        best.createMs = Math.min(best.createMs, performance.now() - begin);
        best.frozenMs = Math.min(best.frozenMs, frozenMs - syncMs);
        await another.kill("the test");
      }
      console.log(JSON.stringify(best));
      expect(best.frozenMs).toBeLessThan(IN_VM ? 1000 : 100);
      expect(best.createMs).toBeLessThan(IN_VM ? 1000 : 100);
      const copy = await use.create({ limits, disk: { from: layer } });
      expect((await run(copy, ["stat", "-c", "%s", "/home/user/big"])).stdout).toBe(`${megabytes * MIB}\n`);
      // What both share is counted for each, and stored once.
      expect((await copy.stats()).diskBytes).toBeGreaterThanOrEqual(megabytes * MIB);
      const { diskUsedBytes } = await use.engine.capacity();
      expect(diskUsedBytes).toBeLessThan(1.5 * megabytes * MIB + 256 * MIB);
    },
  );
});

/** What doctor says of the disk is what an engine on the same directory says, whatever is mounted at the moment. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { BubblewrapEngine } from "@holdfast/engine";
import { formatBytes } from "@holdfast/protocol";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { readPoolDisk } from "../../packages/engine/src/doctor/pool-disk.js";
import { inspectPromises } from "../../packages/engine/src/doctor/promises.js";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { patienceMs } from "../helpers/scale.js";

const MIB = 1024 * 1024;

let before: Inventory;
beforeAll(() => {
  before = takeInventory();
});
afterAll(() => assertNoLeaks(before));

/** A file system of its own: what others write meanwhile changes nothing. */
function ownFileSystem(size: string): string {
  const directory = mkdtempSync(OUR_DIRECTORIES);
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${size}`, "tmpfs", directory]);
  onTestFinished(() => {
    execFileSync("umount", [directory]);
    rmSync(directory, { recursive: true });
  });
  return directory;
}

test("a pool is told of before it is there, while it is mounted and afterwards", {
  timeout: patienceMs(60_000),
}, async () => {
  const stateDirectory = ownFileSystem("3g");
  const options = { stateDirectory, pool: "btrfs" } as const;
  const planned = readPoolDisk(options);
  expect(planned).toMatchObject({ usedBytes: 0, of: `the pool (btrfs) that would be made in ${stateDirectory}` });

  const engine = await BubblewrapEngine.open({ stateDirectory, pool: "btrfs" });
  const { host, capacity, reserve } = await engine.budget();
  const mounted = readPoolDisk(options);
  expect(mounted).toEqual({
    totalBytes: host.diskBytes,
    usedBytes: host.diskUsedBytes,
    of: `the pool ${join(stateDirectory, "pool")} (btrfs, in ${join(stateDirectory, "pool.btrfs")})`,
  });
  const row = inspectPromises(options).find(({ name }) => name === "budget: disk");
  expect(row?.by).toBe(
    `${formatBytes(capacity.diskBytes)} to give, ${formatBytes(reserve.diskBytes)} kept for the host, 0 B promised, ${formatBytes(host.diskUsedBytes)} in use; of ${mounted.of}`,
  );
  await engine.close({ sandboxes: "kill" });

  const closed = readPoolDisk(options);
  expect(closed.of).toBe(`the pool in ${join(stateDirectory, "pool.btrfs")}, which is not mounted now`);
  // What btrfs keeps for itself is not known from outside.
  for (const { totalBytes } of [planned, closed]) {
    expect(Math.abs(totalBytes - host.diskBytes)).toBeLessThan(256 * MIB);
  }
});

test("the weaker pool is the file system of its directory", { timeout: patienceMs(60_000) }, async () => {
  const stateDirectory = ownFileSystem("3g");
  const engine = await BubblewrapEngine.open({ stateDirectory, pool: "dir" });
  const { host } = await engine.budget();
  expect(readPoolDisk({ stateDirectory, pool: "dir" })).toEqual({
    totalBytes: host.diskBytes,
    usedBytes: host.diskUsedBytes,
    of: `the file system of ${stateDirectory} (pool dir)`,
  });
  await engine.close({ sandboxes: "kill" });
});

test("where no pool can be made it says why", () => {
  const stateDirectory = ownFileSystem("64m");
  expect(readPoolDisk({ stateDirectory: join(stateDirectory, "below"), pool: "btrfs" })).toEqual({
    totalBytes: 0,
    usedBytes: 0,
    of: `no pool: a disk pool needs 1 GiB, but ${stateDirectory} has 64 MiB free`,
  });
});

/** Disks of both kinds of pool: what is enforced, what is watched, and what the host keeps for itself. */
import { statfsSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openBubblewrap } from "../helpers/open-bubblewrap.js";
import { patienceMs } from "../helpers/scale.js";
import { useSharedEngine } from "../helpers/shared-engine.js";
import { collect, MIB, run, SMALL_LIMITS, shell } from "../helpers/use-engine.js";

/** Random, so that nothing between us and the disk can make it small. */
const FILL = "head -c 200M /dev/urandom >big";

describe("a disk in a btrfs pool", () => {
  const use = useSharedEngine(openBubblewrap("btrfs"));

  it("refuses to be overfilled, and the cause says so", async () => {
    const sandbox = await use.create();
    const poolFile = join(use.stateDirectory, "pool.btrfs");
    const blocksBefore = statSync(poolFile).blocks;
    const result = await shell(sandbox, FILL);
    expect(result.stderr).toMatch(/No space left on device|Disk quota exceeded/);
    expect(result.cause).toMatchObject({ kind: "out_of_disk", limitBytes: SMALL_LIMITS.diskBytes });
    const used = result.cause.kind === "out_of_disk" ? result.cause.usedBytes : 0;
    expect(used).toBeGreaterThan(SMALL_LIMITS.diskBytes * 0.9);
    expect(used).toBeLessThanOrEqual(SMALL_LIMITS.diskBytes);
    expect(result.message).toContain("Try --disk 128m");
    await shell(sandbox, "sync");
    // Of the host's disk it took its limit and what the file system itself needs, not 200 MiB.
    expect((statSync(poolFile).blocks - blocksBefore) * 512).toBeLessThan(SMALL_LIMITS.diskBytes + 48 * MIB);
    expect((await shell(sandbox, "stat -c %s big")).stdout.trim()).not.toBe(String(200 * MIB));
  });

  it("that was full on the way is an incident", async () => {
    const result = await shell(await use.create(), `${FILL} 2>/dev/null; rm big; exit 0`);
    expect(result.cause).toEqual({ kind: "exited", code: 0 });
    expect(result.incidents).toMatchObject([{ kind: "out_of_disk" }]);
  });

  it("that was emptied again is no later command's incident", async () => {
    const sandbox = await use.create();
    await shell(sandbox, FILL);
    await shell(sandbox, "rm big");
    for (const script of ["true", "exit 3"]) {
      const result = await shell(sandbox, script);
      expect(result.incidents).toEqual([]);
      expect(result.cause).toMatchObject({ kind: "exited" });
    }
    // And there is room again.
    const again = await shell(sandbox, "head -c 30M /dev/urandom >again && sync && stat -c %s again");
    expect(again.stdout.trim()).toBe(String(30 * MIB));
  });

  it("that is full is not the cause of a failure that has nothing to do with it", async () => {
    const sandbox = await use.create();
    await shell(sandbox, FILL);
    const result = await shell(sandbox, "exit 3");
    expect(result.cause).toEqual({ kind: "exited", code: 3 });
  });

  it("that is full leaves the control channel and the neighbours alone", async () => {
    const [full, neighbour] = await Promise.all([use.create(), use.create()]);
    await shell(full, FILL);
    expect((await run(full, ["echo", "well"])).stdout).toBe("well\n");
    await expect(full.files.write("~/more", Buffer.alloc(4 * MIB, "x"))).rejects.toMatchObject({ code: "no_space" });
    expect((await full.files.stat("~/big")).type).toBe("file");
    expect((await shell(neighbour, "head -c 30M /dev/urandom >mine && stat -c %s mine")).stdout.trim()).toBe(
      String(30 * MIB),
    );
  });

  it("counts /tmp and /var too", async () => {
    const sandbox = await use.create();
    const result = await shell(sandbox, "head -c 40M /dev/urandom >/tmp/a && head -c 40M /dev/urandom >/var/tmp/b");
    expect(result.cause).toMatchObject({ kind: "out_of_disk" });
  });

  it(
    "does not fill with files of no size",
    async () => {
      const sandbox = await use.create({ limits: { ...SMALL_LIMITS, diskBytes: 4 * MIB } });
      const script =
        "i=0; while [ $i -lt 400 ]; do mkdir d$i && cd d$i && seq 1000 | xargs touch || exit 1; cd ..; i=$((i+1)); done";
      const result = await shell(sandbox, script, { limits: { wallMs: patienceMs(15_000) } });
      expect(result.cause).toMatchObject({ kind: "out_of_disk" });
    },
    patienceMs(60_000),
  );

  it("takes a sparse file for what it holds", async () => {
    const sandbox = await use.create();
    const result = await shell(sandbox, "truncate -s 10G sparse && stat -c %s sparse");
    expect(result.stdout.trim()).toBe(String(10 * 1024 * MIB));
    expect(result.incidents).toEqual([]);
    expect((await sandbox.stats()).diskBytes).toBeLessThan(4 * MIB);
  });

  it("gives its space back when the sandbox ends", async () => {
    const free = () => {
      const info = statfsSync(join(use.stateDirectory, "pool"));
      return info.bavail * info.bsize;
    };
    const before = free();
    for (let i = 0; i < 3; i++) {
      const sandbox = await use.create();
      await shell(sandbox, "head -c 40M /dev/urandom >file; sync");
      await sandbox.kill("the test");
    }
    await expect.poll(() => before - free(), { timeout: patienceMs(5000) }).toBeLessThan(64 * MIB);
  });
});

describe("a disk in a dir pool", () => {
  const use = useSharedEngine(openBubblewrap("dir"));

  it("that is over its limit ends the sandbox, which says so", async () => {
    const sandbox = await use.create();
    const command = await sandbox.start({
      argv: ["bash", "-c", "head -c 200M /dev/urandom >big; echo written; sleep 1000"],
    });
    const ending = await sandbox.ended;
    expect(ending.cause).toMatchObject({ kind: "out_of_disk", limitBytes: SMALL_LIMITS.diskBytes });
    expect(ending.message).toContain("Ended for disk");
    expect((await collect(command)).cause).toMatchObject({ kind: "out_of_disk" });
  });

  it("says what is in use", async () => {
    const sandbox = await use.create();
    await shell(sandbox, "head -c 20M /dev/urandom >file");
    const { diskBytes } = await sandbox.stats();
    expect(diskBytes).toBeGreaterThan(19 * MIB);
    expect(diskBytes).toBeLessThan(24 * MIB);
  });

  it("is counted and removed however deep its directories are", async () => {
    const sandbox = await use.create({ limits: { ...SMALL_LIMITS, memoryBytes: 256 * MIB, diskBytes: 256 * MIB } });
    // Deeper than any path can say.
    const script =
      '$n = "a" x 100; for (1 .. 200) { mkdir $n and chdir $n or die } symlink "/", "root"; mkdir "closed", 0';
    expect((await run(sandbox, ["perl", "-e", script])).cause).toEqual({ kind: "exited", code: 0 });
    expect((await sandbox.stats()).diskBytes).toBeGreaterThan(0);
    expect((await sandbox.kill("the test")).cause).toEqual({ kind: "killed", by: "the test" });
  });
});

/** Stopped sandboxes outlive processes, crashes at any moment, and restarts of the host. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BubblewrapEngine, type PoolKind, type Sandbox } from "@holdfast/engine";
import type { SandboxId } from "@holdfast/protocol";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { buildEngine, runScript, type ScriptProcess } from "../helpers/built-engine.js";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { forgiveZombies, runningSince } from "../helpers/processes.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { sandboxesLeftIn } from "../helpers/shared-engine.js";
import { MIB, run, SMALL_LIMITS, shell } from "../helpers/use-engine.js";

let before: Inventory;
let stateDirectory: string;
let engine: BubblewrapEngine | undefined;
let pool: PoolKind = "btrfs";

beforeAll(buildEngine, patienceMs(60_000));
beforeEach(() => {
  before = takeInventory();
  stateDirectory = mkdtempSync(OUR_DIRECTORIES);
  pool = "btrfs";
});
afterEach(async () => {
  engine ??= await openEngine();
  await engine.sweep();
  for (const id of engine.stopped()) await engine.discard(id);
  await engine.close({ sandboxes: "kill" });
  engine = undefined;
  expect(sandboxesLeftIn(stateDirectory)).toEqual([]);
  rmSync(stateDirectory, { recursive: true, force: true });
  await assertNoLeaks(forgiveZombies(before));
});

const openEngine = () => BubblewrapEngine.open({ stateDirectory, pool });

/** The engine in use. */
function current(): BubblewrapEngine {
  if (engine === undefined) throw new Error("no engine is open");
  return engine;
}

/** Another engine, as another process would open it. */
async function reopen(options: { sandboxes: "kill" | "keep" } = { sandboxes: "keep" }): Promise<void> {
  await current().close(options);
  engine = await openEngine();
}

function startStopper(plan: object = {}): ScriptProcess {
  return runScript("stopper.mjs", [stateDirectory, JSON.stringify({ spec: { limits: SMALL_LIMITS }, pool, ...plan })]);
}

async function kill(script: ScriptProcess): Promise<void> {
  script.child.kill("SIGKILL");
  expect((await script.exited).signal).toBe("SIGKILL");
}

const recordPath = (id: SandboxId) => join(stateDirectory, "sandboxes", id, "record.json");

/** As if the host had been restarted since. */
function pretendRestart(id: SandboxId): void {
  const record = JSON.parse(readFileSync(recordPath(id), "utf8")) as object;
  writeFileSync(recordPath(id), JSON.stringify({ ...record, bootId: "00000000-0000-0000-0000-000000000000" }));
}

async function expectKept(sandbox: Sandbox): Promise<void> {
  expect((await shell(sandbox, "cat /home/user/kept; stat -c %U /home/user/kept")).stdout).toBe("text\nuser\n");
}

async function made(spec: object = {}): Promise<Sandbox> {
  engine ??= await openEngine();
  const sandbox = await engine.create({ limits: SMALL_LIMITS, ...spec });
  await sandbox.files.write("/home/user/kept", "text\n");
  return sandbox;
}

async function stoppedOne(): Promise<Sandbox> {
  const sandbox = await made();
  await sandbox.stop("the test");
  return sandbox;
}

describe("a stopped sandbox", () => {
  it.each(["btrfs", "dir"] as const)(
    "or a running one is what a SIGKILL at any moment of stopping and booting leaves, on a %s pool",
    { timeout: patienceMs(120_000) },
    async (kind) => {
      pool = kind;
      const seen = { adopted: 0, stopped: 0 };
      for (let i = 0; i < scaled(16, 4); i++) {
        const stopper = startStopper({ freeze: i % 2 === 1 });
        let { id, command: lastId } = await stopper.next<{ id: SandboxId; command: number }>();
        for (let skipped = 0; skipped < i % 4; skipped++) lastId = (await stopper.next<{ command: number }>()).command;
        await sleep(Math.random() * patienceMs(50));
        await kill(stopper);
        engine = await openEngine();
        const adopted = await engine.adopt();
        expect([...adopted.map((sandbox) => sandbox.id), ...engine.stopped()]).toEqual([id]);
        seen[adopted.length === 1 ? "adopted" : "stopped"] += 1;
        expect(await engine.sweep()).toEqual([]);
        if (adopted.length === 0) expect(runningSince(before)).toEqual([]);
        const sandbox = adopted[0] ?? (await engine.boot(id));
        if (sandbox.state === "frozen") await sandbox.thaw();
        await expectKept(sandbox);
        const command = await sandbox.start({ argv: ["true"] });
        expect(command.id).toBeGreaterThan(lastId);
        await sandbox.kill("the test");
        await engine.close({ sandboxes: "kill" });
        engine = undefined;
        expect(sandboxesLeftIn(stateDirectory)).toEqual([]);
      }
      console.log(`${seen.adopted} adopted, ${seen.stopped} stopped`);
    },
  );

  it("is booted by another process, after the one that stopped it has closed or died", async () => {
    const { id } = await stoppedOne();
    await reopen();
    expect(await current().adopt()).toEqual([]);
    expect(current().stopped()).toEqual([id]);
    const again = await current().boot(id);
    await expectKept(again);
    // It is a sandbox like any other now: kept by its engine's end, adopted by the next.
    await reopen();
    const [adopted] = await current().adopt();
    expect(adopted?.id).toBe(id);
    await expectKept(adopted as Sandbox);
  });

  it("is left alone by an engine that kills what it has", async () => {
    const { id } = await stoppedOne();
    await reopen({ sandboxes: "kill" });
    await expectKept(await current().boot(id));
  });

  it("gets another range of uids, and its files stay its users'", async () => {
    const ranges = new Set<string>();
    let sandbox = await made();
    for (let i = 0; i < 3; i++) {
      ranges.add((await shell(sandbox, "cat /proc/self/uid_map")).stdout);
      await sandbox.stop("the test");
      sandbox = await current().boot(sandbox.id);
      await expectKept(sandbox);
      // Output that outgrows what is kept in memory goes to files that belong to the new range.
      const result = await run(sandbox, ["head", "-c", "3000000", "/dev/zero"], {
        spillBytes: 4 * MIB,
        whenReaderIsSlow: "drop",
      });
      expect(result.usage.stdoutBytes).toBe(3_000_000);
    }
    expect(ranges.size).toBeGreaterThan(1);
  });

  it("boots although its disk is full, and can be emptied then", async () => {
    const sandbox = await made();
    const filled = await shell(
      sandbox,
      "head -c 100M /dev/urandom >big; sync; for i in $(seq 2000); do : >f$i || exit 1; done",
    );
    expect(filled.exitCode).not.toBe(0);
    await sandbox.stop("the test");
    const again = await current().boot(sandbox.id);
    await expectKept(again);
    expect((await shell(again, "head -c 30M /dev/urandom >more")).exitCode).not.toBe(0);
    expect((await shell(again, "rm -f big more f*; sync; echo room >less && cat less")).stdout).toBe("room\n");
  });

  it("is booted although it has turned its own system files into something else", async () => {
    const sandbox = await made();
    const spoilt = await shell(
      sandbox,
      `mv /sys /sys2; mkdir -p /sys/devices/system/cpu/online; ln -s /proc/self/mem /sys/devices/system/cpu/present
       rm -rf /run /tmp /var /mnt /etc; ln -s / /run; mkdir -p /etc; ls -d /sys/devices/system/cpu/online`,
      { user: "root" },
    );
    expect(spoilt.exitCode).toBe(0);
    await sandbox.stop("the test");
    const again = await current().boot(sandbox.id);
    expect((await run(again, ["/bin/cat", "/home/user/kept"], { user: "0", cwd: "/" })).stdout).toBe("text\n");
  });

  it("is not booted when it has put a link where a directory of the host is to be mounted", async () => {
    const shared = mkdtempSync(OUR_DIRECTORIES);
    try {
      const mounts = [{ source: shared, target: "/data/deep/shared", readOnly: true }];
      const sandbox = await made({ mounts });
      expect((await shell(sandbox, "mv /data /moved && ln -s /oldroot/tmp /data", { user: "root" })).exitCode).toBe(0);
      await sandbox.stop("the test");
      await expect(current().boot(sandbox.id)).rejects.toMatchObject({ code: "file_wrong_type" });
      expect(current().stopped()).toEqual([sandbox.id]);
    } finally {
      rmSync(shared, { recursive: true, force: true });
    }
  });

  it("is left to the end of its stop by an engine that closes meanwhile", async () => {
    const sandbox = await made();
    const stopping = sandbox.stop("the test");
    await reopen();
    expect((await stopping).cause).toEqual({ kind: "stopped", by: "the test" });
    expect(runningSince(before)).toEqual([]);
    await expectKept(await current().boot(sandbox.id));
  });

  it("leaves nothing behind when it is discarded, however much it held", async () => {
    const sandbox = await made();
    await shell(
      sandbox,
      "for i in $(seq 500); do mkdir -p d$i/e; echo $i >d$i/e/f; done; head -c 20M /dev/urandom >big",
    );
    await sandbox.stop("the test");
    await current().discard(sandbox.id);
    expect(sandboxesLeftIn(stateDirectory)).toEqual([]);
    // What layers' inode numbers begin after is the pool's own.
    expect(readdirSync(join(stateDirectory, "pool"))).toEqual(["inodes"]);
  });

  it("whose removal was cut off is removed by the sweep, or by being discarded again, and never booted", async () => {
    const [first, second] = [await made(), await made()];
    for (const sandbox of [first, second]) {
      await sandbox.stop("the test");
      const record = JSON.parse(readFileSync(recordPath(sandbox.id), "utf8")) as object;
      writeFileSync(recordPath(sandbox.id), JSON.stringify({ ...record, discarded: true }));
    }
    expect(current().stopped()).toEqual([]);
    await expect(current().boot(first.id)).rejects.toMatchObject({ code: "sandbox_exists" });
    await current().discard(first.id);
    expect(await current().sweep()).toMatchObject([{ id: second.id, why: "its removal was cut off" }]);
  });

  it("stays as it is when its record cannot be written", async () => {
    const sandbox = await made();
    mkdirSync(`${recordPath(sandbox.id)}.new`);
    await expect(sandbox.stop("the test")).rejects.toThrow();
    expect(sandbox.state).toBe("running");
    await expectKept(sandbox);
    rmSync(`${recordPath(sandbox.id)}.new`, { recursive: true });
  });

  it("outlives a restart of the host", async () => {
    const { id } = await stoppedOne();
    pretendRestart(id);
    await reopen();
    expect(await current().sweep({ which: "all" })).toEqual([]);
    await expectKept(await current().boot(id));
  });
});

describe("a sandbox that ran when the host went down", () => {
  it("is salvaged with its files, and its commands' ids go on", async () => {
    const ran = await made();
    const { id } = ran;
    const last = (await ran.start({ argv: ["sleep", "1000"] })).id;
    pretendRestart(id);
    await reopen();
    expect(await current().adopt()).toEqual([]);
    expect(current().salvage(id)).toBe(true);
    expect(current().salvage(id)).toBe(false);
    expect(current().stopped()).toEqual([id]);
    expect(await current().sweep()).toEqual([]);
    expect(runningSince(before)).toEqual([]);
    const sandbox = await current().boot(id);
    await expectKept(sandbox);
    expect((await sandbox.start({ argv: ["true"] })).id).toBeGreaterThan(last);
  });

  it("is booted right after it was salvaged, and what was left of it is gone first", async () => {
    const { id } = await made();
    pretendRestart(id);
    await reopen();
    expect(current().salvage(id)).toBe(true);
    await expectKept(await current().boot(id));
  });

  it("is swept if nobody salvages it, or if it was to end with its owner", async () => {
    const [kept, bound] = [await made(), await made({ whenOwnerDies: "end" })];
    for (const { id } of [kept, bound]) pretendRestart(id);
    await reopen();
    expect(current().salvage(bound.id)).toBe(false);
    const reports = await current().sweep({ which: "abandoned" });
    expect(reports.map(({ id }) => id).sort()).toEqual([kept.id, bound.id].sort());
    for (const { why } of reports) expect(why).toBe("the host has been restarted since");
  });
});

describe("the layers that the host's image was made of", () => {
  it("are removed once nobody can be using them", async () => {
    const images = join(stateDirectory, "images");
    engine = await openEngine();
    const names = { old: "host-0123456789abcdef", recent: "host-fedcba9876543210", foreign: "another" };
    for (const name of Object.values(names)) mkdirSync(join(images, name, "root"), { recursive: true });
    const longAgo = new Date(Date.now() - 7200_000);
    for (const name of [names.old, names.foreign]) utimesSync(join(images, name), longAgo, longAgo);
    const sandbox = await made();
    for (const name of readdirSync(images).filter((entry) => !Object.values(names).includes(entry))) {
      utimesSync(join(images, name), longAgo, longAgo);
    }
    await engine.sweep();
    expect(readdirSync(images)).not.toContain(names.old);
    expect(readdirSync(images)).toEqual(expect.arrayContaining([names.recent, names.foreign]));
    await expectKept(sandbox);
    expect(readdirSync(images)).toHaveLength(3);
  });
});

/** What serves the content of volumes, and what a server that was killed leaves of them. */
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { openSqliteStore } from "../../packages/server/src/store/sqlite/open-sqlite-store.js";
import { openVolumes } from "../../packages/server/src/volumes/open-volumes.js";
import { VolumeKeeper } from "../../packages/server/src/volumes/volume-keeper.js";
import { lacksHost } from "../helpers/needs-host.js";
import { patienceMs } from "../helpers/scale.js";
import { sandboxesLeftIn } from "../helpers/shared-engine.js";
import { makeSmallHost, type SmallHost } from "../helpers/small-host.js";
import { MIB, SMALL_LIMITS, useEngine } from "../helpers/use-engine.js";

const log = pino({ level: "silent" });

describe("what serves contents on a small host", () => {
  const { HOLDFAST_CGROUP_PARENT } = process.env;
  let small: SmallHost;
  beforeEach(() => {
    // Room for one.
    small = makeSmallHost({ memoryBytes: 512 * MIB, pids: 250 });
    process.env.HOLDFAST_CGROUP_PARENT = small.parent;
  });
  // Before the engine's own, because hooks run in reverse.
  afterEach(() => {
    small.remove();
    if (HOLDFAST_CGROUP_PARENT === undefined) delete process.env.HOLDFAST_CGROUP_PARENT;
    else process.env.HOLDFAST_CGROUP_PARENT = HOLDFAST_CGROUP_PARENT;
  });
  const use = useEngine();

  test("goes as soon as nobody uses it and another is needed", async () => {
    const keeper = new VolumeKeeper({ engine: use.engine, log, idleMs: 60_000 });
    for (const letter of ["a", "b", "c"]) {
      const volume = { id: `v${letter.repeat(20)}`, keyId: "k" };
      await use.engine.volumes.create(volume.id, { limitBytes: 16 * MIB });
      const atOnce = await keeper.use(volume, async (inside) => {
        await inside.files.write(await inside.at("/file", { last: "followed" }), letter);
        return use.engine.list().length;
      });
      expect(atOnce).toBe(1);
    }
    await keeper.close();
  });
});

describe("what serves contents", () => {
  const use = useEngine();
  const open = (idleMs: number) => new VolumeKeeper({ engine: use.engine, log, idleMs });
  let serial = 0;
  async function volumesOf(keyId: string, count: number) {
    const made = Array.from({ length: count }, () => ({ id: `v${String(serial++).padStart(20, "0")}`, keyId }));
    for (const { id } of made) await use.engine.volumes.create(id, { limitBytes: 16 * MIB });
    return made;
  }
  const write = (keeper: VolumeKeeper, volume: { id: string; keyId: string }) =>
    keeper.use(volume, async (inside) => {
      await inside.files.write(await inside.at("/file", { last: "followed" }), "x");
    });

  test("goes when nobody has asked for a while, and comes again", async () => {
    const [volume] = await volumesOf("k", 1);
    if (volume === undefined) return;
    const keeper = open(200);
    await Promise.all([write(keeper, volume), write(keeper, volume), write(keeper, volume)]);
    const [first] = use.engine.list();
    expect(use.engine.list()).toHaveLength(1);
    await expect.poll(() => sandboxesLeftIn(use.stateDirectory), { timeout: patienceMs(3000) }).toEqual([]);
    await write(keeper, volume);
    expect(use.engine.list().map(({ id }) => id)).not.toEqual([first?.id]);
    // Nor does it go while somebody asks, however long that takes.
    await keeper.use(volume, () => sleep(600));
    expect(use.engine.list()).toHaveLength(1);
    await keeper.close();
    expect(use.engine.list()).toEqual([]);
    await expect(write(keeper, volume)).rejects.toMatchObject({ code: "server_stopping" });
  });

  const tooMany = lacksHost({ pids: 17 * 136, why: "as many as there may be, and one more" });
  test.skipIf(tooMany)(
    "is bounded in number: the one that was not used for longest makes room, and a busy one does not",
    {
      timeout: patienceMs(30_000),
    },
    async () => {
      const keeper = open(60_000);
      const volumes = await volumesOf("k", 18);
      for (const volume of volumes) await write(keeper, volume);
      await expect.poll(() => use.engine.list().length, { timeout: patienceMs(3000) }).toBe(16);
      let release: () => void = () => {};
      const held = new Promise<void>((resolve) => {
        release = resolve;
      });
      const busy = volumes.slice(2).map((volume) => keeper.use(volume, () => held));
      const [first] = volumes;
      if (first === undefined) return;
      await expect(write(keeper, first)).rejects.toMatchObject({ code: "host_capacity" });
      // Another key is not kept from its own.
      const [other] = await volumesOf("another", 1);
      if (other !== undefined) await write(keeper, other);
      release();
      await Promise.all(busy);
      await write(keeper, first);
      await keeper.close();
      expect(sandboxesLeftIn(use.stateDirectory)).toEqual([]);
    },
  );

  test("that dies under a request says so, and the next one is served", async () => {
    const [volume] = await volumesOf("k", 1);
    if (volume === undefined) return;
    const keeper = open(60_000);
    await write(keeper, volume);
    const broken = keeper.use(volume, async (inside) => {
      await use.engine.list()[0]?.kill("the test");
      await inside.files.stat("/volume/file");
    });
    await expect(broken).rejects.toMatchObject({ code: "volume_not_found" });
    await write(keeper, volume);
    await keeper.close();
  });
});

describe.each(["btrfs", "dir"] as const)("a start on what is left, in a %s pool", (pool) => {
  const use = useEngine({ pool });

  test("finishes removals, drops what nobody was told of, and keeps everything else", async () => {
    const directory = join(use.stateDirectory, "records");
    const store = await openSqliteStore(join(use.stateDirectory, "test.db"));
    onTestFinished(() => store.close());
    const said: string[] = [];
    const log = pino({ level: "warn" }, { write: (line: string) => void said.push(line) });
    const open = () => openVolumes({ engine: use.engine, store, log, directory, limitBytes: 16 * MIB });
    const operator = { kind: "operator" } as const;

    const first = await open();
    expect(said.join().includes("cannot enforce volumeMb")).toBe(pool === "dir");
    const [kept, going, torn] = await Promise.all(
      ["kept", "going", "torn"].map((name) => first.create(operator, name)),
    );
    if (kept === undefined || going === undefined || torn === undefined) throw new Error("not all were made");
    await first.close();
    const [untold, unknown] = [`v${"1".repeat(20)}`, `v${"2".repeat(20)}`];
    for (const id of [untold, unknown]) await use.engine.volumes.create(id, { limitBytes: 16 * MIB });
    for (const id of [kept.id, going.id, torn.id, unknown]) {
      writeFileSync(join(use.engine.volumes.path(id), "file"), "x");
    }
    writeFileSync(join(directory, `${going.id}.json`), JSON.stringify({ ...going, removed: true }));
    writeFileSync(join(directory, `${torn.id}.json`), "{");

    const second = await open();
    expect(await second.list(operator)).toEqual([kept]);
    expect(second.tokenOf(kept)).toBe(first.tokenOf(kept));
    expect(use.engine.volumes.list().sort()).toEqual([kept.id, torn.id, unknown].sort());
    expect(readdirSync(directory).sort()).toEqual([`${kept.id}.json`, `${torn.id}.json`].sort());
    expect(said.join()).toContain("nothing is known about it");
    expect(said.join()).toContain("record cannot be read");
    await second.close();
  });

  test("says what it could not remove, so that it is counted, and removes it the next time", async () => {
    const directory = join(use.stateDirectory, "records");
    const store = await openSqliteStore(join(use.stateDirectory, "test.db"));
    onTestFinished(() => store.close());
    const said: { left?: string; volume?: string }[] = [];
    const log = pino({ level: "warn" }, { write: (line: string) => void said.push(JSON.parse(line)) });
    const open = () => openVolumes({ engine: use.engine, store, log, directory, limitBytes: 16 * MIB });
    const first = await open();
    const volume = await first.create({ kind: "operator" }, "going");
    await first.close();
    writeFileSync(join(directory, `${volume.id}.json`), JSON.stringify({ ...volume, removed: true }));
    const mounts = [{ source: use.engine.volumes.path(volume.id), target: "/volume", readOnly: false }];
    const sandbox = await use.engine.create({ limits: SMALL_LIMITS, mounts });

    await (await open()).close();
    expect(said.filter(({ left }) => left !== undefined)).toMatchObject([{ left: "volume", volume: volume.id }]);
    await sandbox.kill("the test");
    await (await open()).close();
    expect(said.filter(({ left }) => left !== undefined)).toHaveLength(1);
    expect([use.engine.volumes.list(), readdirSync(directory)]).toEqual([[], []]);
  });
});

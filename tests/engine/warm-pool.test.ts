/** Sandboxes that are ready before they are asked for, on the real kernel: whose they are, what they cost, what is left. */
import { mkdirSync, readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BubblewrapEngine, GUEST_SHARE, type Sandbox, type SandboxSpec, type WarmSettings } from "@holdfast/engine";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { detectCgroups } from "../../packages/engine/src/cgroups/index.js";
import { buildEngine, runScript } from "../helpers/built-engine.js";
import { fitting } from "../helpers/needs-host.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { collect, MIB, SMALL_LIMITS, shell } from "../helpers/use-engine.js";
import { useOwnEngines } from "../helpers/use-own-engines.js";
import { addBusybox, makeLayer, onLayers } from "./layer-images.js";

const WARM: WarmSettings = { perShape: 2, total: 4, maxAgeMs: 600_000, keepFreeShare: 0 };
/** Several are there at once: with few processes each, so that a small host carries them. */
const LIMITS = { ...SMALL_LIMITS, pids: 24 };
const SPEC: Partial<SandboxSpec> = { limits: LIMITS };
const SIZE = SMALL_LIMITS.memoryBytes + GUEST_SHARE.memoryBytes;

const use = useOwnEngines();

beforeAll(buildEngine, patienceMs(60_000));
afterEach(async () => {
  await use.closeAll();
  expect(readdirSync(join(use.stateDirectory, "sandboxes"))).toEqual([]);
});

async function open(warm: Partial<WarmSettings> = {}, memoryBytes?: number): Promise<BubblewrapEngine> {
  if (memoryBytes !== undefined) use.onSmallHost({ memoryBytes });
  const budget = memoryBytes === undefined ? {} : { reserve: { memoryBytes: 0 } };
  return use.open({ warm: { ...WARM, ...warm }, budget });
}

/** As the server does it: a ready one if there is one. */
async function ask(engine: BubblewrapEngine, spec: Partial<SandboxSpec> = SPEC): Promise<Sandbox> {
  return engine.create(spec, { warm: await engine.warm.claim(spec), admission: { lane: "key1" } });
}

/** One is asked for, so many times, and so many like it are ready afterwards. */
async function fill(
  engine: BubblewrapEngine,
  spec: Partial<SandboxSpec> = SPEC,
  times = 1,
  ready = times,
): Promise<void> {
  for (let time = 0; time < times; time++) {
    const sandbox = await ask(engine, spec);
    await sandbox.kill("the test");
  }
  await engine.warm.idle();
  // Where there was no room for one while another was there, it is made a moment later.
  await expect.poll(() => engine.warm.stats().ready, { timeout: patienceMs(5000) }).toBe(ready);
}

describe("a sandbox that is ready", () => {
  test("is handed out to the next who asks for its shape, and is then like any other", async () => {
    const engine = await open();
    await fill(engine);
    expect(engine.warm.stats()).toMatchObject({ ready: 1, hits: 0, misses: 1 });
    expect(engine.list()).toEqual([]);
    const [reserved] = (await engine.budget()).reservations;
    expect(reserved).toMatchObject({ kind: "warm", lane: "", amounts: { memoryBytes: SIZE } });
    const spec = { ...SPEC, env: { WHO: "me" }, labels: { key: "key1" }, workdir: "/tmp" };
    const sandbox = await ask(engine, spec);
    await engine.warm.idle();
    expect(sandbox.id).toBe(reserved?.id);
    expect(sandbox.spec).toMatchObject(spec);
    expect(engine.list().map(({ id }) => id)).toEqual([sandbox.id]);
    expect((await engine.budget()).reservations).toContainEqual({ ...reserved, kind: "sandbox", lane: "key1" });
    expect((await shell(sandbox, "echo $WHO; pwd")).stdout).toBe("me\n/tmp\n");
    expect(engine.warm.stats()).toMatchObject({ ready: 2, hits: 1, misses: 1 });
    await sandbox.freeze();
    await sandbox.thaw();
    await sandbox.kill("the test");
    expect((await engine.budget()).reserved.memoryBytes).toBe(2 * SIZE);
  });

  test("costs what it is said to cost", async () => {
    const engine = await open();
    await fill(engine, SPEC, 2);
    const { ready, reserved, used } = engine.warm.stats();
    expect({ ready, reserved }).toEqual({
      ready: 2,
      reserved: {
        memoryBytes: 2 * SIZE,
        pids: 2 * (LIMITS.pids + GUEST_SHARE.pids),
        diskBytes: 2 * SMALL_LIMITS.diskBytes,
      },
    });
    expect(used.pids).toBeGreaterThanOrEqual(2 * 2);
    expect(used.pids).toBeLessThanOrEqual(2 * GUEST_SHARE.pids);
    expect(used.memoryBytes).toBeGreaterThan(0);
    expect(used.memoryBytes).toBeLessThanOrEqual(2 * GUEST_SHARE.memoryBytes);
  });

  test("is not for another shape, nor for what no ready one can be", async () => {
    const engine = await open();
    await fill(engine);
    const [ready] = (await engine.budget()).reservations;
    const others: Partial<SandboxSpec>[] = [
      { limits: { ...LIMITS, pids: LIMITS.pids + 1 } },
      { ...SPEC, defaultUser: "root" },
      { ...SPEC, hostname: "other" },
      { ...SPEC, whenOwnerDies: "end" },
      { ...SPEC, mounts: [{ source: use.stateDirectory, target: "/mnt", readOnly: true }] },
      { ...SPEC, makesLayer: true },
    ];
    for (const spec of others) {
      const claim = await engine.warm.claim(spec);
      expect(claim).toBeUndefined();
    }
    await engine.warm.idle();
    const claim = await engine.warm.claim(SPEC);
    expect(claim?.id).toBe(ready?.id);
    claim?.release();
    expect((await engine.warm.claim(SPEC))?.id).toBe(ready?.id);
  });

  test("is given to one of a hundred who ask at once, and the others get their own", {
    timeout: patienceMs(120_000),
  }, async () => {
    const engine = await open({ perShape: 4 });
    await fill(engine, SPEC, 4);
    expect(engine.warm.stats().ready).toBe(4);
    const claims = await Promise.all(Array.from({ length: 100 }, () => engine.warm.claim(SPEC)));
    const got = claims.flatMap((claim) => claim ?? []);
    expect(new Set(got.map(({ id }) => id)).size).toBe(4);
    for (const claim of got) claim.release();
    const sandboxes = await Promise.all(Array.from({ length: fitting(scaled(100, 8), LIMITS) }, () => ask(engine)));
    expect(new Set(sandboxes.map(({ id }) => id)).size).toBe(sandboxes.length);
    const said = await Promise.all(
      sandboxes.map((sandbox) => shell(sandbox, `echo ${sandbox.id} > /tmp/who; cat /tmp/who`)),
    );
    expect(said.map(({ stdout }) => stdout.trim())).toEqual(sandboxes.map(({ id }) => id));
    await Promise.all(sandboxes.map((sandbox) => sandbox.kill("the test")));
    const { made, hits, ready, waste } = engine.warm.stats();
    await engine.warm.idle();
    expect(hits).toBeGreaterThanOrEqual(4);
    expect(made).toBeGreaterThanOrEqual(hits + ready + Object.values(waste).reduce((sum, count) => sum + count, 0));
  });

  test("that has died, or is frozen, is not handed out", async () => {
    const engine = await open();
    await fill(engine);
    const [first] = (await engine.budget()).reservations;
    await freezeFromOutside(first?.id ?? "");
    const sandbox = await ask(engine);
    expect(sandbox.id).not.toBe(first?.id);
    expect((await shell(sandbox, "echo well")).stdout).toBe("well\n");
    expect(engine.warm.stats()).toMatchObject({ hits: 0, misses: 2, waste: { unhealthy: 1 } });
  });

  test("that dies between the claim and the hand-over is made anew under the same id", async () => {
    const engine = await open();
    await fill(engine);
    const claim = await engine.warm.claim(SPEC);
    for (const pid of guestPids(claim?.id ?? "")) process.kill(pid, "SIGKILL");
    await sleep(50);
    const sandbox = await engine.create(SPEC, { warm: claim });
    expect(sandbox.id).toBe(claim?.id);
    expect((await shell(sandbox, "echo well")).stdout).toBe("well\n");
  });

  test("runs its first command like any other, whatever that is", { timeout: patienceMs(60_000) }, async () => {
    const engine = await open({ perShape: 4 });
    await fill(engine, SPEC, 4);
    const next = async () => {
      await engine.warm.idle();
      const { hits } = engine.warm.stats();
      const sandbox = await ask(engine);
      expect(engine.warm.stats().hits).toBe(hits + 1);
      return sandbox;
    };
    const script = "echo $WHO; pwd; id -u; tty; cat";
    const said: string[] = [];
    for (const sandbox of [await next(), await engine.create(SPEC)]) {
      const command = await sandbox.start({
        argv: ["/bin/sh", "-c", script],
        env: { WHO: "me" },
        cwd: "/tmp",
        user: "root",
        stdin: "open",
        limits: { memoryBytes: 16 * MIB, pids: 8 },
      });
      command.stdin?.end("in\n");
      said.push((await collect(command)).stdout);
    }
    expect(said[0]).toBe("me\n/tmp\n0\nnot a tty\nin\n");
    expect(said[1]).toBe(said[0]);
    const limited = await next();
    const starved = await shell(limited, "dd if=/dev/zero of=/dev/null bs=32M count=1", {
      limits: { memoryBytes: 8 * MIB },
    });
    expect(starved.cause.kind).toBe("out_of_memory");
    const terminal = await next();
    const shown = await collect(
      await terminal.start({ argv: ["/bin/sh", "-c", "tty; stty size"], pty: { columns: 33, rows: 11 } }),
    );
    expect(shown.stdout).toBe("/dev/pts/0\r\n11 33\r\n");
    const resized = await next();
    await resized.resize({ pids: 32 });
    expect((await shell(resized, "ulimit -u 2>/dev/null || ulimit -p")).stdout).toBe("32\n");
    const lost = await next();
    await expect(lost.start({ argv: ["/no/such"] })).rejects.toMatchObject({ code: "command_failed_to_start" });
    await expect(lost.start({ argv: ["/bin/true"], cwd: "/no/such" })).rejects.toMatchObject({
      code: "invalid_argument",
    });
    expect((await shell(lost, "echo on")).stdout).toBe("on\n");
    const large = await next();
    const value = "x".repeat(100_000);
    expect((await shell(large, "printf %s $LARGE | wc -c", { env: { LARGE: value } })).stdout).toBe("100000\n");
    const many = await next();
    const all = await Promise.all(Array.from({ length: 5 }, (_, index) => shell(many, `echo ${index}`)));
    expect(all.map(({ stdout }) => stdout)).toEqual(["0\n", "1\n", "2\n", "3\n", "4\n"]);
    const canceled = await next();
    const endless = await canceled.start({ argv: ["/bin/sleep", "1000"] });
    expect((await endless.cancel("the test")).cause.kind).toBe("canceled");
    const { pids } = await canceled.stats();
    expect(pids).toBe((await (await engine.create(SPEC)).stats()).pids);
  });

  test("is ended when it is too old, and made again while it is asked for", async () => {
    const engine = await open({ maxAgeMs: 1500 });
    await fill(engine);
    const [first] = (await engine.budget()).reservations;
    await expect.poll(() => engine.warm.stats().waste.age, { timeout: patienceMs(5000) }).toBeGreaterThan(0);
    await engine.warm.idle();
    expect((await engine.budget()).reservations.map(({ id }) => id)).not.toContain(first?.id);
  });

  test("looks from inside as one that was made when it was asked for", async () => {
    const engine = await open();
    await fill(engine, SPEC, 2);
    const spec = { ...SPEC, env: { WHO: "me" } };
    const warm = [await ask(engine, spec), await ask(engine, spec)];
    expect(engine.warm.stats().hits).toBeGreaterThanOrEqual(2);
    const cold = [await engine.create(spec), await engine.create(spec)];
    const looks = await Promise.all([...warm, ...cold].map(lookInside));
    const [one, other, third, fourth] = looks;
    expect(one?.same).toEqual(third?.same);
    expect(other?.same).toEqual(fourth?.same);
    // What tells two of the one kind apart tells two of the other apart.
    const differ = (a: Look | undefined, b: Look | undefined) =>
      Object.keys(a?.own ?? {}).filter((name) => a?.own[name] !== b?.own[name]);
    expect(differ(one, other)).toEqual(differ(third, fourth));
  });
});

describe("real work", () => {
  test("gets the room of what is only ready, whether or not it would wait", async () => {
    const engine = await open({}, 3.5 * SIZE);
    await fill(engine, SPEC, 2);
    expect(engine.warm.stats().ready).toBe(2);
    const large = { limits: { ...LIMITS, memoryBytes: 3 * SMALL_LIMITS.memoryBytes } };
    let hasWaited = false;
    const sandbox = await engine.create(large, {
      admission: {
        waitMs: 60_000,
        onWaiting: () => {
          hasWaited = true;
        },
      },
    });
    expect(hasWaited).toBe(false);
    expect(engine.warm.stats()).toMatchObject({ ready: 0, waste: { evicted: 2 } });
    await sandbox.kill("the test");
    const again = await engine.create(large);
    expect((await shell(again, "echo in")).stdout).toBe("in\n");
  });

  test("is never waited for by what is made ready", async () => {
    const engine = await open({}, 2.5 * SIZE);
    const first = await ask(engine);
    const second = await ask(engine);
    await engine.warm.idle();
    expect(engine.warm.stats().ready).toBe(0);
    const third = engine.create(SPEC, { admission: { waitMs: 60_000 } });
    await first.kill("the test");
    expect((await shell(await third, "echo in")).stdout).toBe("in\n");
    await engine.warm.idle();
    expect(engine.warm.stats().ready).toBe(0);
    await second.kill("the test");
  });

  test("of another process gets it, too", async () => {
    const engine = await open({}, 2.5 * SIZE);
    await fill(engine, SPEC, 2);
    expect(engine.warm.stats().ready).toBe(2);
    const other = await BubblewrapEngine.open({
      stateDirectory: use.stateDirectory,
      budget: { reserve: { memoryBytes: 0 } },
    });
    try {
      const sandbox = await other.create(SPEC);
      expect((await shell(sandbox, "echo in")).stdout).toBe("in\n");
      expect(engine.warm.stats().waste.evicted).toBeGreaterThan(0);
    } finally {
      await other.close({ sandboxes: "kill" });
    }
  });

  test("keeps a share of the host free of what is only ready", async () => {
    const engine = await open({ keepFreeShare: 0.6 }, 4 * SIZE);
    await fill(engine, SPEC, 3, 1);
    await sleep(1500);
    expect(engine.warm.stats().ready).toBe(1);
  });
});

describe("what it stands on", () => {
  test("can be removed: layers are not in use by what is only ready", async () => {
    const engine = await open();
    const layer = await makeLayer(engine, (directory) => addBusybox(directory));
    const spec = { ...SPEC, ...onLayers(layer), defaultUser: "root" };
    await fill(engine, spec);
    expect(engine.warm.stats().ready).toBe(1);
    expect(engine.layers.users(layer)).toEqual([]);
    await engine.layers.remove(layer);
    expect(engine.layers.has(layer)).toBe(false);
    expect(engine.warm.stats()).toMatchObject({ ready: 0, waste: { drained: 1 } });
    await expect(ask(engine, spec)).rejects.toMatchObject({ code: "image_not_found" });
    await engine.warm.idle();
    expect(engine.warm.stats().ready).toBe(0);
  });

  test("can be removed by another process", async () => {
    const engine = await open();
    const layer = await makeLayer(engine, (directory) => addBusybox(directory));
    await fill(engine, { ...SPEC, ...onLayers(layer), defaultUser: "root" });
    const other = await BubblewrapEngine.open({ stateDirectory: use.stateDirectory });
    try {
      await other.layers.remove(layer);
      expect(engine.layers.has(layer)).toBe(false);
      await expect.poll(() => engine.warm.stats().ready, { timeout: patienceMs(5000) }).toBe(0);
    } finally {
      await other.close({ sandboxes: "kill" });
    }
  });

  test("is what it is now: a directory by the same name is another image", async () => {
    const engine = await open();
    const path = join(use.stateDirectory, "rootfs");
    const make = (name: string) => {
      mkdirSync(path);
      addBusybox(path);
      mkdirSync(join(path, name));
    };
    make("old");
    const spec: Partial<SandboxSpec> = { ...SPEC, image: { kind: "rootfs", path }, defaultUser: "root" };
    await fill(engine, spec);
    expect(engine.warm.stats().ready).toBe(1);
    renameSync(path, `${path}.before`);
    make("new");
    const sandbox = await ask(engine, spec);
    expect((await shell(sandbox, "ls -d /new")).stdout).toBe("/new\n");
    await expect.poll(() => engine.warm.stats().waste.drained, { timeout: patienceMs(5000) }).toBe(1);
  });
});

describe("a process that is killed", () => {
  test("leaves ready ones that nobody adopts, and the next ends them", { timeout: patienceMs(120_000) }, async () => {
    const plan = JSON.stringify({ spec: SPEC, warm: WARM, rounds: 1000 });
    for (let round = 0; round < scaled(8, 2); round++) {
      const owner = runScript("warm-owner.mjs", [use.stateDirectory, plan]);
      const kept: string[] = [];
      for (let index = 0; index < 2; index++) kept.push((await owner.next<{ id: string }>()).id);
      await sleep(Math.random() * 150);
      owner.child.kill("SIGKILL");
      await owner.exited;
      const engine = await BubblewrapEngine.open({ stateDirectory: use.stateDirectory });
      const adopted = await engine.adopt();
      expect(adopted.map(({ id }) => id)).toContain(kept[1]);
      for (const sandbox of adopted)
        expect(readdirSync(join(use.stateDirectory, "sandboxes", sandbox.id))).not.toContain("warm");
      await engine.sweep();
      const { reservations } = await engine.budget();
      expect(reservations.map(({ id, kind }) => [id, kind]).sort()).toEqual(
        adopted.map(({ id }) => [id, "sandbox"]).sort(),
      );
      await engine.close({ sandboxes: "kill" });
      expect(readdirSync(join(use.stateDirectory, "sandboxes"))).toEqual([]);
    }
  });

  test("leaves nothing to whoever only sweeps what is abandoned", async () => {
    const plan = JSON.stringify({ spec: SPEC, warm: WARM, rounds: 1 });
    const owner = runScript("warm-owner.mjs", [use.stateDirectory, plan]);
    const { stats } = await owner.next<{ stats: { ready: number } }>();
    expect(stats.ready).toBe(1);
    owner.child.kill("SIGKILL");
    await owner.exited;
    const engine = await open();
    expect(await engine.sweep({ which: "abandoned" })).toMatchObject([
      { why: "it was kept ready by a process that is gone" },
    ]);
    expect((await engine.budget()).reservations.filter(({ kind }) => kind === "warm")).toEqual([]);
    await engine.sweep();
  });
});

test("an engine that is closed leaves nothing, and one without a pool makes nothing ready", async () => {
  const engine = await open();
  await fill(engine, SPEC, 2);
  await engine.close({ sandboxes: "keep" });
  expect(engine.warm.stats()).toMatchObject({ ready: 0, waste: { closed: 2 } });
  expect(readdirSync(join(use.stateDirectory, "sandboxes"))).toEqual([]);
  for (const off of [{ perShape: 0 }, { total: 0 }]) {
    const without = await open(off);
    await fill(without, SPEC, 2, 0);
    expect(without.warm.stats()).toMatchObject({ ready: 0, made: 0, misses: 0 });
  }
});

function cgroupOf(id: string) {
  const cgroup = detectCgroups().open(id as Sandbox["id"]);
  if (cgroup === undefined) throw new Error(`sandbox ${id} has no cgroup`);
  return cgroup;
}

const guestPids = (id: string): number[] => cgroupOf(id).guestProcesses();
const freezeFromOutside = (id: string): Promise<void> => cgroupOf(id).freeze();

interface Look {
  /** What every sandbox of this spec has alike. */
  readonly same: Readonly<Record<string, string>>;
  /** What two of them may have different. */
  readonly own: Readonly<Record<string, string>>;
}

const SAME = {
  environment: "env | sort",
  user: "id; pwd; umask",
  hostname: "hostname; cat /proc/sys/kernel/hostname",
  // Numbers of mounts and devices come as they come.
  mounts:
    "sed -E 's/^[0-9]+ [0-9]+ [0-9]+:[0-9]+ //; s/ (master|shared):[0-9]+//g; s/([ug]id)=[0-9]+/\\1=N/g' /proc/self/mountinfo | sed 's,/disks/[a-z0-9]*,,; s,[a-z0-9]\\{20\\}[a-z0-9]*,ID,g' | sort",
  limits: "ulimit -a; nproc; head -3 /proc/meminfo | grep MemTotal",
  etc: "cd /etc; for f in hostname hosts passwd group resolv.conf machine-id; do echo $f; cat $f 2>&1; done",
  files: "stat -c '%A %U %G %n %N' /* /home/* /tmp/* /home/user/.* 2>&1",
  network: "cat /proc/net/dev | wc -l; cat /proc/net/route",
  processes: "set -- /proc/[0-9]*; echo $#",
  control: "sed 's,[0-9]*:,,' /proc/self/cgroup",
  capabilities: "grep -E '^(Cap|NoNewPrivs|Seccomp)' /proc/self/status",
} as const;
const OWN = {
  pidNamespace: "readlink /proc/self/ns/pid",
  netNamespace: "readlink /proc/self/ns/net",
  mountNamespace: "readlink /proc/self/ns/mnt",
  userNamespace: "readlink /proc/self/ns/user",
  uidMap: "cat /proc/self/uid_map",
  bootId: "cat /proc/sys/kernel/random/boot_id",
  machineId: "cat /etc/machine-id 2>&1",
  random: "head -c 16 /dev/urandom | od -An -tx1",
  hostKeys: "cat /etc/ssh/ssh_host_*_key.pub 2>/dev/null; true",
} as const;

async function lookInside(sandbox: Sandbox): Promise<Look> {
  const look = async (scripts: Readonly<Record<string, string>>) => {
    const seen: Record<string, string> = {};
    for (const [name, script] of Object.entries(scripts)) {
      const { stdout, stderr } = await shell(sandbox, script);
      seen[name] = (stdout + stderr).replaceAll(sandbox.id, "ID");
    }
    return seen;
  };
  return { same: await look(SAME), own: await look(OWN) };
}

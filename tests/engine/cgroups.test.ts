/** The cgroup module on the real kernel, as root, once for each layout this host can show. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { createSandboxId, HoldfastError, RESERVED_PIDS } from "@holdfast/protocol";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import {
  type CgroupHost,
  createOomLog,
  detectCgroups,
  GUEST_MEMORY_BYTES,
  GUEST_PIDS,
  type SandboxCgroup,
} from "../../packages/engine/src/cgroups/index.js";
import { patienceMs } from "../helpers/scale.js";

const MIB = 1024 * 1024;
const UID = 1_879_048_192;
const LIMITS = { memoryBytes: 64 * MIB, pids: 64, cpuMillis: 1000 };
const DELEGATION = { limits: LIMITS, uid: UID, gid: UID };

const mountinfo = readFileSync("/proc/self/mountinfo", "utf8");
const hasV1 = / - cgroup cgroup .*\bmemory\b/.test(mountinfo);
const hasV2 = / - cgroup2 /.test(mountinfo);
const withoutV2 = mountinfo.replaceAll(/^.* - cgroup2 .*$\n/gm, "");
const views: { view: string; text: string }[] = [
  ...(hasV2 ? [{ view: hasV1 ? "hybrid" : "v2", text: mountinfo }] : []),
  ...(hasV1 ? [{ view: "v1", text: withoutV2 }] : []),
];

const children: ChildProcess[] = [];
let parent = "";

beforeEach(() => {
  parent = `test-${createSandboxId()}`;
});

afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  expect(leftovers()).toEqual([]);
});

/** Every directory of this test's parent that still is there, in any hierarchy of the host. */
function leftovers(): string[] {
  const points = [...mountinfo.matchAll(/^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2? /gm)].map((match) => match[1] ?? "");
  return points.map((point) => `${point}/${parent}`).filter((path) => existsSync(path));
}

/** A sandbox's cgroup for the length of a test. What it does not kill and remove itself counts as a leak. */
async function withSandbox(
  text: string,
  body: (cgroup: SandboxCgroup, host: CgroupHost) => Promise<void> | void,
  limits = LIMITS,
): Promise<void> {
  const host = detectCgroups({ parent, mountinfo: text });
  const cgroup = host.create(createSandboxId(), { ...DELEGATION, limits });
  try {
    await body(cgroup, host);
  } finally {
    expect(await cgroup.kill()).toEqual({ survivors: [] });
    cgroup.remove();
    host.removeIfEmptyParents();
  }
}

interface Started {
  readonly child: ChildProcess;
  readonly pid: number;
  output(): string;
  ended(): Promise<{ code: number | null; signal: string | null }>;
}

/** As the launcher and the guest do: join the guest's leaf as root, become the sandbox's user, make and join cmd/<n>. */
function start(cgroup: SandboxCgroup, n: number, script: string): Started {
  const joinGuest = cgroup.guestProcsFiles.map((file) => `echo $$ > '${file}'`);
  const joinCommand = cgroup.commandDirs.map(
    ({ path }) => `mkdir -p '${path}/${n}' && echo $$ > '${path}/${n}/cgroup.procs'`,
  );
  const outer = `${joinGuest.join(" && ")} && exec chroot --userspec=${UID}:${UID} --groups= / bash -c "$0" "$1"`;
  const inner = `${joinCommand.join(" && ")} && exec bash -c "$0"`;
  const child = spawn("bash", ["-c", outer, inner, script], { cwd: "/", stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  let output = "";
  child.stdout?.on("data", (chunk) => {
    output += String(chunk);
  });
  child.stderr?.on("data", (chunk) => {
    output += String(chunk);
  });
  const end = once(child, "close").then(([code, signal]) => ({ code, signal }));
  return { child, pid: child.pid ?? 0, output: () => output, ended: () => end };
}

async function until(what: string, isTrue: () => boolean, timeoutMs = patienceMs(5000)): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (!isTrue()) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`);
    await sleep(5);
  }
}

function isAlive(pid: number): boolean {
  try {
    // A zombie is dead; what remains is its parent's to collect.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

async function rejection(action: () => unknown): Promise<HoldfastError> {
  try {
    await action();
  } catch (reason) {
    if (reason instanceof HoldfastError) return reason;
    throw reason;
  }
  throw new Error("it did not fail");
}

describe.each(views)("on $view", ({ view, text }) => {
  test("detection says who enforces what and leaves nothing", () => {
    const host = detectCgroups({ parent, mountinfo: text });
    expect(host.layout).toBe(view);
    expect(host.controllers.memory?.by).toContain(view === "v2" ? "cgroup v2 memory at" : "cgroup v1 memory at");
    expect(host.controllers.pids).toBeDefined();
    expect(host.controllers.cpu).toBeDefined();
    expect(host.controllers.kill).toBeDefined();
    expect(host.controllers.freeze).toBeDefined();
    expect(host.list()).toEqual([]);
    host.removeIfEmptyParents();
  });

  test("a new sandbox has its limits, and can be found again", async () => {
    await withSandbox(text, (cgroup, host) => {
      expect(cgroup.readSandbox()).toMatchObject({
        memoryLimitBytes: 64 * MIB,
        pidsLimit: 64,
        oomKills: 0,
        pids: 0,
        pidsRefused: 0,
      });
      const [memory] = cgroup.commandDirs;
      const file = view === "v2" ? "memory.max" : "memory.limit_in_bytes";
      expect(readFileSync(`${memory?.path}/../guest/${file}`, "utf8")).toBe(`${GUEST_MEMORY_BYTES}\n`);
      const pids = cgroup.commandDirs.find(({ name }) => name === (view === "v2" ? "unified" : "pids"));
      expect(readFileSync(`${pids?.path}/pids.max`, "utf8")).toBe(`${64 - RESERVED_PIDS}\n`);
      expect(readFileSync(`${pids?.path}/../guest/pids.max`, "utf8")).toBe(`${GUEST_PIDS}\n`);
      expect(host.list()).toEqual([cgroup.id]);
      expect(host.open(cgroup.id)?.paths).toEqual(cgroup.paths);
      const elsewhere = detectCgroups({ parent: `${parent}/other`, mountinfo: text });
      expect(elsewhere.open(cgroup.id)).toBeUndefined();
      const paths: Record<string, string> = { ...cgroup.paths };
      expect(elsewhere.openAt(paths)?.paths).toEqual(cgroup.paths);
      elsewhere.removeIfEmptyParents();
    });
  });

  test("recorded paths that lead elsewhere are refused", async () => {
    const host = detectCgroups({ parent, mountinfo: text });
    const name = view === "v2" ? "unified" : "memory";
    for (const path of ["/etc/holdfast/x1", "/sys/fs/cgroup/memory/../../holdfast/x1", "/sys/fs/cgroup/memory/x1"]) {
      expect((await rejection(() => host.openAt({ [name]: path }))).code).toBe("invalid_argument");
    }
    expect(host.openAt({})).toBeUndefined();
    host.removeIfEmptyParents();
  });

  test("a failed create leaves nothing behind", async () => {
    const host = detectCgroups({ parent, mountinfo: text });
    const id = createSandboxId();
    await rejection(() => host.create(id, { ...DELEGATION, uid: -5 }));
    expect(host.list()).toEqual([]);
    const first = host.create(id, DELEGATION);
    expect((await rejection(() => host.create(id, DELEGATION))).code).toBe("sandbox_exists");
    expect(host.list()).toEqual([id]);
    // The last hierarchy refuses; the earlier ones are cleaned.
    const last = Object.values(first.paths).at(-1) ?? "";
    first.remove();
    mkdirSync(last);
    expect((await rejection(() => host.create(id, DELEGATION))).code).toBe("sandbox_exists");
    expect(Object.values(first.paths).filter((path) => existsSync(path))).toEqual([last]);
    rmdirSync(last);
    host.removeIfEmptyParents();
  });

  test("an OOM kill is counted in its command alone, the sibling lives, the log names the victim", async () => {
    const log = createOomLog();
    await withSandbox(text, async (cgroup) => {
      const sibling = start(cgroup, 8, "echo up; exec sleep 60");
      await until("the sibling runs", () => sibling.output().includes("up"));
      // The shell survives its child and ends well: the exit code proves nothing.
      const hog = start(cgroup, 7, "tail /dev/zero; echo tail=$?; exit 0");
      expect(await hog.ended()).toEqual({ code: 0, signal: null });
      expect(hog.output()).toContain("tail=137");
      expect(cgroup.readCommand(7)).toMatchObject({ oomKills: 1, memoryLimitBytes: undefined, pids: 0 });
      expect(cgroup.readCommand(7)?.memoryPeakBytes).toBeGreaterThan(48 * MIB);
      expect(cgroup.readCommand(8)).toMatchObject({ oomKills: 0, pids: 1 });
      expect(cgroup.readCommand(9)).toBeUndefined();
      expect(cgroup.commandProcesses(8)).toEqual([sibling.pid]);
      expect(isAlive(sibling.pid)).toBe(true);
      const victims = log.victimsOf(cgroup.oomLogPath);
      expect(victims).toHaveLength(1);
      expect(victims?.[0]).toMatchObject({ name: "tail", taskMemcg: `${cgroup.oomLogPath}/cmd/7`, scope: "memcg" });
      expect(victims?.[0]?.rssBytes).toBeGreaterThan(48 * MIB);
      expect(log.victimsOf("/holdfast/another")).toEqual([]);
      // The sum outlives the command's cgroup.
      expect(cgroup.removeCommand(8)).toBe(false);
      expect(cgroup.removeCommand(7)).toBe(true);
      expect(cgroup.removeCommand(7)).toBe(true);
      expect(cgroup.readCommand(7)).toBeUndefined();
      expect(cgroup.readSandbox().oomKills).toBe(1);
    });
    log.close();
  });

  test("a command's own memory limit is told from the sandbox's", async () => {
    await withSandbox(text, async (cgroup) => {
      const file = view === "v2" ? "memory.max" : "memory.limit_in_bytes";
      const path = `${cgroup.commandDirs[0]?.path}/3/${file}`;
      const hog = start(cgroup, 3, `echo ${24 * MIB} > '${path}'; tail /dev/zero; exit 0`);
      await hog.ended();
      expect(cgroup.readCommand(3)).toMatchObject({ oomKills: 1, memoryLimitBytes: 24 * MIB });
      expect(cgroup.readCommand(3)?.ownLimitHits).toBeGreaterThan(0);
    });
  });

  test("refused forks are counted", async () => {
    await withSandbox(
      text,
      async (cgroup) => {
        start(cgroup, 5, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 60 & done; wait");
        await until("a fork is refused", () => cgroup.readSandbox().pidsRefused > 0);
        expect(cgroup.readSandbox().pids).toBe(16 - RESERVED_PIDS);
        expect(cgroup.processes()).toHaveLength(16 - RESERVED_PIDS);
        expect(cgroup.readCommand(5)?.pids).toBe(16 - RESERVED_PIDS);
        // Pure v2 since Linux 6.11 counts at the limit only, which is one level up.
        if (view !== "v2") expect(cgroup.readCommand(5)?.pidsRefused).toBeGreaterThan(0);
        await cgroup.kill();
        const { pidsRefused } = cgroup.readSandbox();
        await until("the command's cgroup can go", () => cgroup.removeCommand(5));
        expect(cgroup.readSandbox().pidsRefused).toBe(pidsRefused);
      },
      { ...LIMITS, pids: 16 },
    );
  });

  test("CPU time is counted and throttled", async () => {
    await withSandbox(
      text,
      async (cgroup) => {
        const spinner = start(cgroup, 1, "echo up; while :; do :; done");
        await until("it runs", () => spinner.output().includes("up"));
        const before = cgroup.readSandbox();
        await sleep(1000);
        const after = cgroup.readSandbox();
        const cpuUsec = (after.cpuUsec ?? 0) - (before.cpuUsec ?? 0);
        // 200 ms by the quota; the host may be busy and its clock late.
        expect(cpuUsec).toBeGreaterThan(50_000);
        expect(cpuUsec).toBeLessThan(600_000);
        expect((after.throttledUsec ?? 0) - (before.throttledUsec ?? 0)).toBeGreaterThan(200_000);
        if (view !== "v1") expect(cgroup.readCommand(1)?.cpuUsec).toBeGreaterThan(50_000);
      },
      { ...LIMITS, cpuMillis: 200 },
    );
  });

  test("freeze stops every process, thaw lets it go on", async () => {
    await withSandbox(text, async (cgroup) => {
      const clock = start(cgroup, 1, "while :; do echo -n .; done");
      await until("it runs", () => clock.output().length > 10);
      expect(cgroup.isFrozen()).toBe(false);
      await cgroup.freeze();
      expect(cgroup.isFrozen()).toBe(true);
      await sleep(50);
      const cpuUsec = cgroup.readSandbox().cpuUsec;
      await sleep(200);
      expect(cgroup.readSandbox().cpuUsec).toBe(cpuUsec);
      await cgroup.thaw();
      expect(cgroup.isFrozen()).toBe(false);
      const length = clock.output().length;
      await until("it runs on", () => clock.output().length > length);
    });
  });

  test("an empty sandbox can be frozen", async () => {
    await withSandbox(text, async (cgroup) => {
      await cgroup.freeze();
      await cgroup.thaw();
    });
  });

  const FORKING = "while :; do (sleep 60 & bash -c 'sleep 60 & sleep 60 & sleep 60' &) 2> /dev/null; done";

  test("kill ends a forking tree", async () => {
    await withSandbox(
      text,
      async (cgroup) => {
        start(cgroup, 1, FORKING);
        start(cgroup, 2, FORKING);
        // An emulated machine takes its time.
        await until("there are many", () => cgroup.readSandbox().pids > 100, 40_000);
        const pids = cgroup.processes();
        expect(cgroup.isEmpty()).toBe(false);
        expect((await rejection(() => cgroup.remove())).code).toBe("engine_fault");
        expect(await cgroup.kill()).toEqual({ survivors: [] });
        expect(cgroup.isEmpty()).toBe(true);
        expect(pids.filter(isAlive)).toEqual([]);
        expect(cgroup.processes()).toEqual([]);
      },
      { ...LIMITS, pids: 256, cpuMillis: 2000, memoryBytes: 512 * MIB },
    );
  });

  test("killCommand ends one command's forking tree and leaves its sibling", async () => {
    await withSandbox(
      text,
      async (cgroup) => {
        const sibling = start(cgroup, 2, "echo up; exec sleep 60");
        await until("the sibling runs", () => sibling.output().includes("up"));
        start(cgroup, 1, FORKING);
        await until("there are some", () => cgroup.commandProcesses(1).length > 20, 40_000);
        const pids = cgroup.commandProcesses(1);
        expect(await cgroup.killCommand(1)).toEqual({ survivors: [] });
        expect(pids.filter(isAlive)).toEqual([]);
        expect(cgroup.processes()).toEqual([sibling.pid]);
        expect(await cgroup.killCommand(99)).toEqual({ survivors: [] });
      },
      { ...LIMITS, cpuMillis: 2000 },
    );
  });

  test("kill ends frozen processes", async () => {
    await withSandbox(text, async (cgroup) => {
      start(cgroup, 1, FORKING);
      await until("there are some", () => cgroup.readSandbox().pids > 20);
      await cgroup.freeze();
      const pids = cgroup.processes();
      expect(await cgroup.kill()).toEqual({ survivors: [] });
      expect(pids.filter(isAlive)).toEqual([]);
    });
  });

  test("kill reaches a process that has joined only some of the hierarchies", async () => {
    await withSandbox(text, async (cgroup) => {
      const child = spawn("bash", ["-c", `echo $$ > '${cgroup.guestProcsFiles[0]}'; echo in; exec sleep 60`]);
      children.push(child);
      await once(child.stdout, "data");
      expect(cgroup.processes()).toEqual([child.pid]);
      expect(await cgroup.kill()).toEqual({ survivors: [] });
      expect(isAlive(child.pid ?? 0)).toBe(false);
    });
  });

  test("limits go up and down while commands run, and never below what is in use", async () => {
    await withSandbox(text, async (cgroup) => {
      const holder = start(
        cgroup,
        1,
        "x=$(head -c 30000000 /dev/zero | tr '\\0' x); echo held; while :; do sleep 1; done",
      );
      await until("it holds 30 MB", () => holder.output().includes("held"));
      cgroup.setLimits({ memoryBytes: 256 * MIB, pids: 32, cpuMillis: 500 });
      expect(cgroup.readSandbox()).toMatchObject({ memoryLimitBytes: 256 * MIB, pidsLimit: 32 });
      const failure = await rejection(() => cgroup.setLimits({ memoryBytes: 16 * MIB, pids: 100 }));
      expect(failure.code).toBe("invalid_argument");
      expect(failure.message).toContain(String(16 * MIB));
      expect(failure.details.usageBytes).toBeGreaterThan(28 * MIB);
      expect(cgroup.readSandbox()).toMatchObject({ memoryLimitBytes: 256 * MIB, pidsLimit: 32, oomKills: 0 });
      // More than the kernel takes, after the memory limit was written already: that one is taken back.
      await rejection(() => cgroup.setLimits({ memoryBytes: 200 * MIB, pids: 2 ** 40 }));
      expect(cgroup.readSandbox()).toMatchObject({ memoryLimitBytes: 256 * MIB, pidsLimit: 32 });
      cgroup.setLimits({ memoryBytes: 128 * MIB, cpuMillis: undefined });
      expect(cgroup.readSandbox()).toMatchObject({ memoryLimitBytes: 128 * MIB, pidsLimit: 32 });
      expect(isAlive(holder.pid)).toBe(true);
    });
  });

  test("the sandbox's user cannot raise a limit, leave, or make cgroups elsewhere", async () => {
    await withSandbox(text, async (cgroup) => {
      const tries = Object.values(cgroup.paths).flatMap((path) => [
        `echo 1 > ${path}/cmd/memory.limit_in_bytes`,
        `echo max > ${path}/cmd/memory.max`,
        `echo max > ${path}/cmd/pids.max`,
        `echo max > ${path}/pids.max`,
        `echo max > ${path}/guest/pids.max`,
        `echo max > ${path}/cmd/cgroup.max.depth`,
        `echo -1 > ${path}/cpu.cfs_quota_us`,
        `echo +memory > ${path}/cmd/cgroup.subtree_control`,
        `echo 1 > ${path}/cgroup.kill`,
        `echo 1 > ${path}/cgroup.freeze`,
        `echo $$ > ${path}/guest/cgroup.procs`,
        `echo $$ > ${path}/../cgroup.procs`,
        `mkdir ${path}/more`,
        `mkdir ${path}/guest/more`,
        `rmdir ${path}/guest`,
        `chown 0 ${path}/cmd`,
      ]);
      const script = tries.map((line) => `( ${line} ) 2> /dev/null && echo 'done: ${line}'`).join("\n");
      const attempt = start(cgroup, 1, `${script}\ncat /proc/self/cgroup; exit 0`);
      await attempt.ended();
      const done = attempt.output().match(/^done: .*$/gm) ?? [];
      expect(done).toEqual([]);
      expect(attempt.output()).toContain(`/${cgroup.id}/cmd/1`);
    });
  });

  test("nested cgroups that the sandbox's user made are removed too", async () => {
    await withSandbox(text, async (cgroup) => {
      const [first] = cgroup.commandDirs;
      const depth = view === "v2" ? 1 : 40;
      const nest = `cd '${first?.path}/1'; for i in $(seq ${depth}); do d=$(printf 'x%.0s' $(seq 200)); mkdir $d && cd $d; done`;
      await start(cgroup, 1, nest).ended();
      await until("it is removed", () => cgroup.removeCommand(1));
    });
  });
});

describe("the place", () => {
  const v1Only = hasV1 ? test : test.skip;
  const v2Only = hasV2 && !hasV1 ? test : test.skip;
  const point = (controller: string) =>
    new RegExp(`^\\S+ \\S+ \\S+ \\S+ (\\S+) .* - cgroup cgroup \\S*\\b${controller}\\b`, "m").exec(mountinfo)?.[1] ??
    "";

  test("is found without anybody's choice", () => {
    vi.stubEnv("HOLDFAST_CGROUP_PARENT", "");
    onTestFinished(() => void vi.unstubAllEnvs());
    const host = detectCgroups();
    const cgroup = host.create(createSandboxId(), DELEGATION);
    onTestFinished(() => {
      cgroup.remove();
      host.removeIfEmptyParents();
    });
    for (const path of Object.values(cgroup.paths)) expect(path).toMatch(new RegExp(`/holdfast/${cgroup.id}$`));
    expect(cgroup.readSandbox()).toMatchObject({ memoryLimitBytes: 64 * MIB, pidsLimit: 64, pids: 0 });
    expect(host.list()).toContain(cgroup.id);
  });

  v1Only("stays below a limit around our own process", () => {
    const twoOnly = mountinfo.replaceAll(/^.* - cgroup2? (?!cgroup \S*\b(memory|pids)\b).*$\n/gm, "");
    const own = [point("memory"), point("pids")].map((mount) => `${mount}/${parent}`);
    for (const directory of own) mkdirSync(`${directory}/inner`, { recursive: true });
    writeFileSync(`${own[0]}/memory.limit_in_bytes`, String(512 * MIB));
    writeFileSync(`${own[1]}/pids.max`, "1000");
    const procCgroup = `4:memory:/${parent}/inner\n8:pids:/${parent}/inner\n`;
    // A parent that somebody chose would go before what surrounds us.
    vi.stubEnv("HOLDFAST_CGROUP_PARENT", "");
    onTestFinished(() => void vi.unstubAllEnvs());
    const host = detectCgroups({ mountinfo: twoOnly, procCgroup });
    const cgroup = host.create(createSandboxId(), { ...DELEGATION, limits: { ...LIMITS, cpuMillis: undefined } });
    expect(Object.values(cgroup.paths)).toEqual(own.map((path) => `${path}/inner/holdfast/${cgroup.id}`));
    expect(host.enclosingLimits()).toMatchObject({ memoryBytes: 512 * MIB, pids: 1000, cpus: undefined });
    expect(host.enclosingLimits().memoryAvailableBytes).toBeLessThanOrEqual(512 * MIB);
    expect(host.controllers.cpu).toBeUndefined();
    expect(() => host.create(createSandboxId(), DELEGATION)).toThrow("cannot limit CPU");
    cgroup.remove();
    host.removeIfEmptyParents();
    for (const directory of own) {
      rmdirSync(`${directory}/inner`);
      rmdirSync(directory);
    }
  });

  v2Only("below a limit, in a cgroup that holds processes, is refused with the remedy", async () => {
    const own = `${/^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 /m.exec(mountinfo)?.[1]}/${parent}`;
    const admin = detectCgroups({ parent });
    writeFileSync(`${own}/holdfast/memory.max`, String(4096 * MIB));
    mkdirSync(`${own}/holdfast/server`);
    const child = spawn("sleep", ["60"]);
    children.push(child);
    writeFileSync(`${own}/holdfast/server/cgroup.procs`, String(child.pid));
    const failure = await rejection(() => detectCgroups({ procCgroup: `0::/${parent}/holdfast/server\n` }));
    expect(failure.code).toBe("host_unsupported");
    expect(failure.hint).toContain("Delegate=yes");
    child.kill("SIGKILL");
    await once(child, "exit");
    await sleep(50);
    rmdirSync(`${own}/holdfast/server`);
    admin.removeIfEmptyParents();
  });

  test("without the pids or memory controller is refused with the remedy", async () => {
    const failure = await rejection(() => detectCgroups({ parent, mountinfo: "" }));
    expect(failure.code).toBe("host_unsupported");
    expect(failure.hint).toContain("memory");
    if (!hasV1) return;
    const withoutPids = mountinfo.replaceAll(/^.* - cgroup cgroup \S*\bpids\b.*$\n/gm, "");
    expect((await rejection(() => detectCgroups({ parent, mountinfo: withoutPids }))).message).toContain("pids");
  });

  test("that is not a path is refused", async () => {
    expect((await rejection(() => detectCgroups({ parent: "../up" }))).code).toBe("invalid_argument");
  });
});

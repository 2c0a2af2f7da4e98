/** Our process may be killed with SIGKILL at any moment: sandboxes go on, and the next process takes over. */
import { spawn } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmdirSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BubblewrapEngine, type Sandbox } from "@holdfast/engine";
import { createSandboxId, type SandboxId } from "@holdfast/protocol";
import { afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { buildEngine, runScript, type ScriptProcess } from "../helpers/built-engine.js";
import { fixture } from "../helpers/fixtures.js";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { OutputReader } from "../helpers/output-reader.js";
import { forgiveZombies, runningSince } from "../helpers/processes.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { sandboxesLeftIn } from "../helpers/shared-engine.js";
import { collect, MIB, run, SMALL_LIMITS, shell } from "../helpers/use-engine.js";

interface Made {
  readonly id: SandboxId;
  readonly commands: number[];
}

/** With few processes each: a small host carries several. */
const LIMITS = { ...SMALL_LIMITS, pids: 16 };

interface Plan {
  readonly sandboxes: readonly { readonly spec?: object; readonly commands?: readonly object[] }[];
  readonly thenCreate?: boolean;
}

let before: Inventory;
let stateDirectory: string;
let engine: BubblewrapEngine | undefined;
const warnings: string[] = [];

beforeAll(buildEngine, patienceMs(60_000));
beforeEach(() => {
  before = takeInventory();
  stateDirectory = mkdtempSync(OUR_DIRECTORIES);
  warnings.length = 0;
});
afterEach(async () => {
  engine ??= await openEngine();
  await engine.sweep();
  await engine.close({ sandboxes: "kill" });
  engine = undefined;
  expect(sandboxesLeftIn(stateDirectory)).toEqual([]);
  rmSync(stateDirectory, { recursive: true, force: true });
  await assertNoLeaks(forgiveZombies(before));
});

function openEngine(): Promise<BubblewrapEngine> {
  const warn = (facts: Record<string, unknown>, message: string) =>
    warnings.push(`${message} ${JSON.stringify(facts)}`);
  return BubblewrapEngine.open({ stateDirectory, log: { info: warn, warn } });
}

function startOwner(plan: Plan): ScriptProcess {
  const sandboxes = plan.sandboxes.map(({ spec, commands }) => ({
    spec: { limits: LIMITS, ...spec },
    commands: commands ?? [],
  }));
  return runScript("owner.mjs", [stateDirectory, JSON.stringify({ ...plan, sandboxes })]);
}

async function kill(owner: ScriptProcess): Promise<void> {
  owner.child.kill("SIGKILL");
  expect((await owner.exited).signal).toBe("SIGKILL");
}

/** Makes what the plan says, then kills the owner. */
async function ownedAndLeft(plan: Plan): Promise<Made[]> {
  const owner = startOwner(plan);
  const { made } = await owner.next<{ made: Made[] }>();
  await kill(owner);
  return made;
}

async function adoptAll(): Promise<Map<SandboxId, Sandbox>> {
  engine = await openEngine();
  return new Map((await engine.adopt()).map((sandbox) => [sandbox.id, sandbox]));
}

function required<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("it is not there");
  return value;
}

describe("after our own SIGKILL", () => {
  it("sandboxes go on, are adopted, and their output is replayed without loss or double", async () => {
    const made = await ownedAndLeft({
      sandboxes: [1, 2].map(() => ({ commands: [{ argv: fixture("counter.sh"), tag: "counter" }] })),
    });
    const adopted = await adoptAll();
    expect([...adopted.keys()].sort()).toEqual(made.map(({ id }) => id).sort());
    for (const { id, commands } of made) {
      const sandbox = required(adopted.get(id));
      expect(sandbox.limits).toEqual(LIMITS);
      expect(await sandbox.commands()).toMatchObject([{ id: commands[0], tag: "counter", running: true }]);
      const command = await sandbox.attach(required(commands[0]), {
        from: { stdout: 0, stderr: 0 },
        whenReaderIsSlow: "block",
      });
      const reader = new OutputReader(command);
      await reader.until("\n3000\n");
      await command.cancel("the test", { graceMs: 0 });
      const lines = (await reader.rest()).split("\n").slice(0, -1);
      expect(reader.gapBytes).toBe(0);
      expect(lines).toEqual(Array.from(lines, (_, i) => String(i)));
      expect(lines.length).toBeGreaterThan(3000);
    }
  });

  it("an adopted sandbox is as good as new", async () => {
    const [made] = await ownedAndLeft({
      sandboxes: [
        { spec: { env: { KEPT: "yes" }, labels: { a: "b" } }, commands: [{ argv: ["sh", "-c", "echo text >kept"] }] },
      ],
    });
    const sandbox = required((await adoptAll()).get(required(made).id));
    expect(sandbox.spec.labels).toEqual({ a: "b" });
    expect(sandbox.state).toBe("running");
    expect((await shell(sandbox, "echo $KEPT; cat kept")).stdout).toBe("yes\ntext\n");
    expect((await run(sandbox, ["tail", "/dev/zero"])).cause).toMatchObject({
      kind: "out_of_memory",
      victims: [{ name: "tail" }],
    });
    expect((await run(sandbox, ["sleep", "1000"], { limits: { wallMs: 200 } })).cause).toEqual({
      kind: "timed_out",
      limitMs: 200,
    });
    await sandbox.resize({ memoryBytes: 128 * MIB });
    await sandbox.freeze();
    await sandbox.thaw();
    expect((await sandbox.kill("the test")).cause).toEqual({ kind: "killed", by: "the test" });
  });

  it("a new command's number is not one that was used before", async () => {
    const [made] = await ownedAndLeft({ sandboxes: [{ commands: [{ argv: ["true"] }, { argv: ["sleep", "1000"] }] }] });
    const { id, commands } = required(made);
    const sandbox = required((await adoptAll()).get(id));
    const command = await sandbox.start({ argv: ["true"] });
    expect(commands).not.toContain(command.id);
    expect((await command.ended).cause).toEqual({ kind: "exited", code: 0 });
  });

  it("what ended meanwhile still has its cause, with its output", async () => {
    const commands = [
      { argv: ["sh", "-c", "sleep 0.3; echo done; exit 7"] },
      { argv: ["sh", "-c", "sleep 0.3; echo hog; exec tail /dev/zero"] },
      { argv: ["sh", "-c", "sleep 0.3; tail /dev/zero; echo hidden; exit 0"], limits: { memoryBytes: 16 * MIB } },
      {
        argv: ["sh", "-c", "echo stubborn; trap '' TERM; sleep 1000 & wait; sleep 1000"],
        limits: { wallMs: 300 },
        graceMs: 100,
      },
      { argv: ["sh", "-c", "sleep 0.3; for i in $(seq 100); do sleep 1000 & done"], limits: { pids: 8 } },
      { argv: ["sh", "-c", "sleep 0.3; kill -SEGV $$"] },
    ];
    const [made] = await ownedAndLeft({ sandboxes: [{ commands }] });
    await sleep(patienceMs(700));
    const sandbox = required((await adoptAll()).get(required(made).id));
    const results = await Promise.all(required(made).commands.map(async (id) => collect(await sandbox.attach(id))));
    expect(results.map(({ cause }) => cause)).toMatchObject([
      { kind: "exited", code: 7 },
      { kind: "out_of_memory", kills: 1 },
      { kind: "exited", code: 0 },
      { kind: "timed_out", limitMs: 300 },
      { kind: "out_of_pids", limit: 8 },
      { kind: "signaled", signal: "SIGSEGV" },
    ]);
    expect(results[2]?.incidents).toMatchObject([{ kind: "out_of_memory" }]);
    expect(results.map(({ stdout }) => stdout)).toEqual(["done\n", "hog\n", "hidden\n", "stubborn\n", "", ""]);
  });

  it("an ending is the same for every later owner", async () => {
    const [made] = await ownedAndLeft({ sandboxes: [{ commands: [{ argv: ["tail", "/dev/zero"] }] }] });
    const { id, commands } = required(made);
    const first = await (await required((await adoptAll()).get(id)).attach(required(commands[0]))).ended;
    expect(first.cause).toMatchObject({ kind: "out_of_memory" });
    await required(engine).close({ sandboxes: "keep" });
    const second = await (await required((await adoptAll()).get(id)).attach(required(commands[0]))).ended;
    expect(second).toEqual(first);
  });

  it("a deadline holds although nobody is there", async () => {
    const [made] = await ownedAndLeft({
      sandboxes: [
        {
          commands: [
            { argv: fixture("stubborn.sh", "/home/user/log"), limits: { wallMs: patienceMs(400) }, graceMs: 100 },
          ],
        },
      ],
    });
    await sleep(patienceMs(400) + patienceMs(300));
    const sandbox = required((await adoptAll()).get(required(made).id));
    expect((await sandbox.commands()).map(({ running }) => running)).toEqual([false]);
    expect((await shell(sandbox, "a=$(stat -c %s log); sleep 0.3; echo $(( $(stat -c %s log) - a ))")).stdout).toBe(
      "0\n",
    );
    const ending = await (await sandbox.attach(required(required(made).commands[0]))).ended;
    expect(ending.cause).toEqual({ kind: "timed_out", limitMs: patienceMs(400) });
  });

  it("the life of a sandbox goes on being measured", async () => {
    const wallMs = patienceMs(1500);
    const [made] = await ownedAndLeft({ sandboxes: [{ spec: { limits: { ...SMALL_LIMITS, wallMs } } }] });
    const sandbox = required((await adoptAll()).get(required(made).id));
    expect((await sandbox.ended).cause).toEqual({ kind: "timed_out", limitMs: wallMs });
  });

  it("a frozen sandbox is adopted frozen", async () => {
    const [made] = await ownedAndLeft({ sandboxes: [{ commands: [{ argv: fixture("counter.sh") }] }] });
    const { id } = required(made);
    await required((await adoptAll()).get(id)).freeze();
    await required(engine).close({ sandboxes: "keep" });
    const sandbox = required((await adoptAll()).get(id));
    expect(sandbox.state).toBe("frozen");
    await sandbox.thaw();
    expect((await run(sandbox, ["echo", "awake"])).stdout).toBe("awake\n");
  });

  it("a sandbox that shall end with its owner does so by itself", async () => {
    const made = await ownedAndLeft({
      sandboxes: [{ spec: { whenOwnerDies: "end" }, commands: [{ argv: fixture("stubborn.sh", "/home/user/log") }] }],
    });
    expect(made).toHaveLength(1);
    const deadline = Date.now() + patienceMs(5000);
    while (runningSince(before).length > 0) {
      expect(Date.now()).toBeLessThan(deadline);
      await sleep(50);
    }
    engine = await openEngine();
    expect(await engine.adopt()).toEqual([]);
    expect(await engine.sweep()).toEqual([{ id: required(made[0]).id, processes: 0, why: expect.any(String) }]);
  });

  it(
    "at a random moment of making sandboxes, what is half made is swept and named, the rest adopted",
    async () => {
      let sweptCount = 0;
      let adoptedCount = 0;
      for (let i = 0; i < scaled(12, 3); i++) {
        const owner = startOwner({ sandboxes: [{ commands: [{ argv: ["sleep", "1000"] }] }], thenCreate: true });
        await owner.next();
        await sleep(Math.random() * patienceMs(40));
        await kill(owner);
        // A name with a dot is a directory that was being made or removed: nobody ever saw a sandbox there.
        const left = new Set(sandboxesLeftIn(stateDirectory).filter((name) => !name.startsWith(".")));
        const adopted = await adoptAll();
        const swept = await required(engine).sweep();
        sweptCount += swept.length;
        adoptedCount += adopted.size;
        expect(new Set([...adopted.keys(), ...swept.map(({ id }) => id)])).toEqual(left);
        for (const { why } of swept) expect(why).toBe("its creation was cut off");
        for (const sandbox of adopted.values()) expect((await run(sandbox, ["echo", "well"])).stdout).toBe("well\n");
        for (const { id } of swept) expect(warnings.some((line) => line.includes(id))).toBe(true);
        await required(engine).close({ sandboxes: "kill" });
        engine = undefined;
        expect(sandboxesLeftIn(stateDirectory)).toEqual([]);
      }
      expect(adoptedCount).toBeGreaterThan(0);
      console.log(`${adoptedCount} adopted, ${sweptCount} half made and swept`);
    },
    patienceMs(60_000),
  );

  it("two engines that adopt at once take each sandbox exactly once", async () => {
    const made = await ownedAndLeft({
      sandboxes: Array.from({ length: 6 }, () => ({ commands: [{ argv: ["sleep", "1000"] }] })),
    });
    const adopters = [1, 2, 3].map(() => runScript("adopter.mjs", [stateDirectory]));
    for (const adopter of adopters) await adopter.next();
    for (const { child } of adopters) child.stdin?.write("now\n");
    const reports = await Promise.all(adopters.map((adopter) => adopter.next<{ adopted: SandboxId[] }>()));
    const taken = reports.flatMap(({ adopted }) => adopted);
    expect(taken.sort()).toEqual(made.map(({ id }) => id).sort());
    for (const { child } of adopters) child.stdin?.end();
    for (const adopter of adopters) expect(await adopter.exited).toEqual({ code: 0, signal: null });
  });

  it("whoever adopted and is killed too leaves them to the next", async () => {
    const made = await ownedAndLeft({ sandboxes: [{ commands: [{ argv: fixture("counter.sh", "500") }] }] });
    const adopter = runScript("adopter.mjs", [stateDirectory]);
    await adopter.next();
    adopter.child.stdin?.write("now\n");
    expect(await adopter.next()).toEqual({ adopted: [required(made[0]).id] });
    await kill(adopter);
    const sandbox = required((await adoptAll()).get(required(made[0]).id));
    const result = await collect(await sandbox.attach(required(required(made[0]).commands[0])));
    expect(result.stdout.split("\n").slice(0, -1)).toEqual(Array.from({ length: 500 }, (_, i) => String(i)));
    expect(result.cause).toEqual({ kind: "exited", code: 0 });
  });
});

describe("the sweep", () => {
  it("does not touch a living owner's sandbox, nor does an adoption", async () => {
    const owner = startOwner({ sandboxes: [{ commands: [{ argv: fixture("counter.sh") }] }] });
    const { made } = await owner.next<{ made: Made[] }>();
    engine = await openEngine();
    expect(await engine.adopt()).toEqual([]);
    expect(await engine.sweep()).toEqual([]);
    await kill(owner);
    expect((await engine.adopt()).map(({ id }) => id)).toEqual(made.map(({ id }) => id));
  });

  it("does not touch what only looks like ours", async () => {
    engine = await openEngine();
    const id = createSandboxId();
    // Programs with our names, and a cgroup with an id like ours beside our own place.
    const lookAlikes = ["bwrap", "holdfast-guest", "holdfast-launch"].map((name) => {
      copyFileSync("/bin/sleep", `${stateDirectory}/${name}`);
      return spawn(`${stateDirectory}/${name}`, ["1000"], { stdio: "ignore" });
    });
    onTestFinished(() => {
      for (const child of lookAlikes) child.kill("SIGKILL");
    });
    const hierarchy = existsSync("/sys/fs/cgroup/memory") ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    const foreign = `${hierarchy}/foreign-${id}/holdfast/${id}`;
    mkdirSync(foreign, { recursive: true });
    // A record without an owner, of a process that is gone, names the pid of a living foreigner.
    mkdirSync(`${stateDirectory}/sandboxes/not-an-id`, { recursive: true });
    const stale = createSandboxId();
    mkdirSync(`${stateDirectory}/sandboxes/${stale}`);
    const recycled = required(lookAlikes[0]?.pid);
    mkdirSync(`${stateDirectory}/sandboxes/${stale}/owner.${recycled}.1`);
    expect((await engine.sweep()).map((report) => report.id)).toEqual([stale]);
    for (const child of lookAlikes) expect(child.exitCode ?? child.signalCode).toBeNull();
    expect(existsSync(foreign)).toBe(true);
    for (const path of [foreign, dirname(foreign), dirname(dirname(foreign))]) rmdirSync(path);
    expect(existsSync(`${stateDirectory}/sandboxes/not-an-id`)).toBe(true);
    rmdirSync(`${stateDirectory}/sandboxes/not-an-id`);
    for (const child of lookAlikes) child.kill("SIGKILL");
    await Promise.all(lookAlikes.map((child) => new Promise((resolve) => child.once("exit", resolve))));
  });

  it("finds nothing after an orderly end", async () => {
    engine = await openEngine();
    await (await engine.create({ limits: SMALL_LIMITS })).kill("the test");
    expect(await engine.adopt()).toEqual([]);
    expect(await engine.sweep()).toEqual([]);
  });
});

/** Killed at any moment, a sandbox leaves nothing: in the middle of being made, just after, or by somebody else's hand. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { BubblewrapEngine, type Sandbox } from "@holdfast/engine";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { openBubblewrap } from "../helpers/open-bubblewrap.js";
import { forgiveZombies, isRunning } from "../helpers/processes.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { sandboxesLeftIn, useSharedEngine } from "../helpers/shared-engine.js";
import { run, SMALL_LIMITS } from "../helpers/use-engine.js";

const TIMES = 60;
const AT_ONCE = 4;
const LONGEST_CREATE_MS = 15;

/** Host pids of the living processes with such a name. */
function programsOf(names: readonly string[]): number[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const program = readFileSync(`/proc/${name}/comm`, "utf8").trim();
      return names.includes(program) && isRunning(Number(name)) ? [Number(name)] : [];
    } catch {
      // It ended while we looked.
      return [];
    }
  });
}

function childrenOf(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
  return text === "" ? [] : text.split(" ").map(Number);
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It was quicker.
  }
}

async function inBatches(count: number, work: (index: number) => Promise<void>): Promise<void> {
  for (let done = 0; done < count; done += AT_ONCE) {
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - done) }, (_, i) => work(done + i)));
  }
}

describe("a sandbox killed early", () => {
  const use = useSharedEngine(openBubblewrap());

  it.each([0, 1, 2, 3, 4, 6, 12])(`leaves no survivor %i ms after its start, ${TIMES} times`, async (delayMs) => {
    const before = takeInventory();
    await inBatches(scaled(TIMES), async () => {
      const controller = new AbortController();
      const created = use.engine.create({ limits: SMALL_LIMITS }, { signal: controller.signal });
      const timer = sleep(delayMs).then(() => controller.abort());
      const outcome = await created.catch((error: unknown) => error);
      await timer;
      if (outcome instanceof Error) expect(outcome).toMatchObject({ name: "HoldfastError", code: "canceled" });
      else await (outcome as Awaited<typeof created>).kill("the test");
    });
    await assertNoLeaks(before);
  });

  it("leaves no survivor when killed as soon as it is there", async () => {
    await inBatches(scaled(TIMES), async (index) => {
      const sandbox = await use.create();
      // Also with a command that is just being started.
      const started =
        index % 2 === 0 ? sandbox.start({ argv: ["sleep", "1000"] }).catch((error: unknown) => error) : undefined;
      expect((await sandbox.kill("the test")).cause).toEqual({ kind: "killed", by: "the test" });
      const command = await started;
      if (command instanceof Error) expect(command).toMatchObject({ name: "HoldfastError" });
    });
  });

  it("that was canceled does not harm the next one", async () => {
    await expect(use.engine.create({}, { signal: AbortSignal.abort() })).rejects.toMatchObject({ code: "canceled" });
    await expect(use.engine.create({}, { signal: AbortSignal.timeout(5) })).rejects.toMatchObject({ code: "canceled" });
    expect((await run(await use.create(), ["echo", "hello"])).stdout).toBe("hello\n");
  });

  it("is not brought back by a command that ends at the same time", async () => {
    const before = takeInventory();
    const stateDirectory = `${use.stateDirectory}/dir-pool`;
    // Here an ending takes longer: what the disk holds has to be counted first.
    const engine = await BubblewrapEngine.open({ stateDirectory, pool: "dir" });
    await inBatches(scaled(24, 4), async (index) => {
      const sandbox = await engine.create({ limits: SMALL_LIMITS });
      const command = await sandbox.start({ argv: ["sh", "-c", "echo x; read line"], stdin: "open" });
      command.stdin?.end("go\n");
      await sleep(index % 8);
      await sandbox.kill("the test");
      await command.ended;
    });
    await engine.close({ sandboxes: "kill" });
    expect(sandboxesLeftIn(stateDirectory)).toEqual([]);
    await assertNoLeaks(before);
  });

  it("does not outlive an engine that closes while it is made", async () => {
    const before = takeInventory();
    const stateDirectory = `${use.stateDirectory}/closing`;
    for (const delayMs of [0, 5, 20]) {
      const engine = await BubblewrapEngine.open({ stateDirectory, pool: "dir" });
      const creating = Array.from({ length: 2 }, () =>
        engine.create({ limits: SMALL_LIMITS }).catch((error: unknown) => error),
      );
      await sleep(delayMs);
      await engine.close({ sandboxes: "kill" });
      const created = await Promise.all(creating);
      const left = sandboxesLeftIn(stateDirectory);
      for (const sandbox of created) if (!(sandbox instanceof Error)) await (sandbox as Sandbox).kill("the test");
      expect(left).toEqual([]);
      await assertNoLeaks(before);
    }
  });
});

/**
 * Whoever kills a monitor makes its child an orphan, which only PID 1 can reap; here that may be a program that never
 * does. What must not be left is anything that lives.
 */
describe("a sandbox whose process is killed by somebody else", () => {
  let engine: BubblewrapEngine;
  let stateDirectory: string;
  let before: Inventory;
  beforeEach(async () => {
    before = takeInventory();
    stateDirectory = mkdtempSync(OUR_DIRECTORIES);
    engine = await BubblewrapEngine.open({ stateDirectory });
  });
  afterEach(async () => {
    await engine.close({ sandboxes: "kill" });
    rmSync(stateDirectory, { recursive: true, force: true });
    await assertNoLeaks(forgiveZombies(before));
  });

  it(
    "fails with a cause while it is made",
    async () => {
      let failures = 0;
      for (let i = 0; i < scaled(TIMES); i++) {
        const created = engine.create({ limits: SMALL_LIMITS }).catch((error: unknown) => error);
        await sleep(Math.random() * LONGEST_CREATE_MS);
        // Only what we started ourselves, first the launcher, then the bubblewrap it becomes: not what these started.
        for (const pid of childrenOf(process.pid).filter((child) =>
          programsOf(["holdfast-launch", "bwrap"]).includes(child),
        ))
          killQuietly(pid);
        const outcome = await Promise.race([created, sleep(patienceMs(5000), "it never came back")]);
        if (outcome instanceof Error) {
          failures += 1;
          expect(outcome).toMatchObject({ name: "HoldfastError" });
        } else {
          expect(outcome).toMatchObject({ state: expect.stringMatching(/running|ended/) });
          // Its monitor was killed after it came up, or nobody was hit at all.
          await (outcome as Sandbox).kill("the test");
        }
        expect(sandboxesLeftIn(stateDirectory)).toEqual([]);
      }
      expect(failures).toBeGreaterThan(0);
    },
    patienceMs(40_000),
  );

  it.each(["bwrap", "guest"])("ends with a cause when it was its %s", async (victim) => {
    for (let i = 0; i < scaled(20, 3); i++) {
      const others = programsOf(["bwrap"]);
      const sandbox = await engine.create({ limits: SMALL_LIMITS });
      const command = await sandbox.start({ argv: ["sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000"] });
      await sleep(Math.random() * 10);
      const monitors = programsOf(["bwrap"]).filter((pid) => !others.includes(pid));
      expect(monitors).toHaveLength(1);
      for (const pid of victim === "bwrap" ? monitors : monitors.flatMap(childrenOf)) killQuietly(pid);
      const ending = await sandbox.ended;
      expect(ending.cause.kind).toBe("guest_exited");
      expect((await command.ended).cause).toMatchObject({ kind: "lost" });
      expect(sandboxesLeftIn(stateDirectory)).toEqual([]);
    }
  });
});

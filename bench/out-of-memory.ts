/** From the kernel's decision to kill for memory until the caller has the cause in hand. */
import { spawn } from "node:child_process";
import { mkdirSync, rmdirSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Bench, compareInTurns, type Figure, type Peer, type Row } from "./harness.js";
import { memoryCgroupRoot } from "./host-facts.js";
import { KernelLog } from "./kernel-log.js";
import { expectSuccess, limitsWith, runInside } from "./sandboxes.js";

const LIMIT_BYTES = 32 * 1024 * 1024;
const GOAL_MS = 20;
/** It keeps a line whole until its end, and this line has none. By a name of its own, to be known by in the log. */
const PROGRAM = "/usr/bin/tail";
const NAME = `hf-bench-${process.pid}`.slice(0, 15);
/** The kernel tells all about a kill at most ten times in five seconds, and the engine wants to know all. */
const PACE_MS = 520;

/** The same without us: a cgroup, a process in it, and a signal to guess from. */
function plainCgroup(bench: Bench, log: KernelLog): Peer {
  const name = "spawn in a cgroup";
  const root = memoryCgroupRoot();
  if (root === undefined) return { name, absent: "the memory controller is not at work at the root" };
  const directory = join(root.path, basename(bench.scratchDirectory));
  mkdirSync(directory);
  bench.onEnd(() => rmdirSync(directory));
  const eater = join(bench.scratchDirectory, NAME);
  symlinkSync(PROGRAM, eater);
  writeFileSync(join(directory, root.limitFile), String(LIMIT_BYTES));
  const measure = async (): Promise<number> => {
    await sleep(PACE_MS);
    log.skipToEnd();
    const script = `echo 0 >"$0"/cgroup.procs; exec "$1" /dev/zero`;
    const child = spawn("/bin/sh", ["-c", script, directory, eater], { stdio: ["ignore", "pipe", "pipe"] });
    child.stdout.resume();
    child.stderr.resume();
    await new Promise((resolve) => child.once("close", resolve));
    return log.millisSinceKillOf(NAME);
  };
  return { name, measure };
}

export const outOfMemory: Figure = {
  name: "out-of-memory",
  title: "A death for memory: from the kernel's kill until its cause is known",
  async run(bench): Promise<Row[]> {
    const log = new KernelLog();
    const sandbox = await bench.engine.create({ limits: limitsWith({ memoryBytes: LIMIT_BYTES }) });
    try {
      await expectSuccess(runInside(sandbox, ["ln", "-s", PROGRAM, `/tmp/${NAME}`]));
      const measure = async (): Promise<number> => {
        await sleep(PACE_MS);
        log.skipToEnd();
        const { cause } = await runInside(sandbox, [`/tmp/${NAME}`, "/dev/zero"]);
        const spent = log.millisSinceKillOf(NAME);
        if (cause.kind !== "out_of_memory") throw new Error(`the cause was ${cause.kind}, not out_of_memory`);
        return spent;
      };
      return await compareInTurns("until its cause is known", { name: "ours", measure }, [plainCgroup(bench, log)], {
        rounds: bench.quick ? 1 : 3,
        turns: bench.quick ? 3 : 5,
        roundMs: 7000,
        signal: bench.signal,
        goals: { "spawn in a cgroup": { kind: "value", atMost: GOAL_MS } },
        note: "the peer knows a signal then, no cause",
      });
    } finally {
      log.close();
      await sandbox.kill("the benchmark");
    }
  },
};

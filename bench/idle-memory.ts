/** What a sandbox costs in which nothing runs. */
import { spawn } from "node:child_process";
import type { Sandbox } from "@holdfast/engine";
import { type Bench, createRow, type Figure, type Row } from "./harness.js";
import { readAvailableMemory } from "./host-facts.js";
import { bubblewrapArguments } from "./peers.js";
import { carriersOf, exitOf, processTree, proportionalBytes } from "./processes.js";
import { runTrue } from "./sandboxes.js";

const MIB = 1024 * 1024;

interface Cost {
  readonly proportional: number;
  readonly host: number;
}

/** Of one sandbox, when there are so many. Each has run a command: a guest that never worked would flatter itself. */
async function costOfOurs(bench: Bench, count: number): Promise<Cost> {
  const before = readAvailableMemory();
  const sandboxes: Sandbox[] = [];
  try {
    while (sandboxes.length < count) {
      bench.signal.throwIfAborted();
      const sandbox = await bench.engine.create({});
      sandboxes.push(sandbox);
      await runTrue(sandbox);
    }
    const carriers = carriersOf(new Set(sandboxes.map((sandbox) => sandbox.id)));
    const proportional = proportionalBytes([...carriers.values()].flat()) / count;
    return { proportional, host: (before - readAvailableMemory()) / count };
  } finally {
    await Promise.all(sandboxes.map((sandbox) => sandbox.kill("the benchmark")));
  }
}

async function costOfBubblewrap(bench: Bench, count: number): Promise<Cost> {
  const before = readAvailableMemory();
  const [program = "", ...args] = bubblewrapArguments(["sh", "-c", "echo up; exec sleep infinity"]);
  const children = Array.from({ length: count }, () =>
    spawn(program, ["--die-with-parent", ...args], { stdio: ["ignore", "pipe", "ignore"] }),
  );
  try {
    await Promise.all(children.map((child) => new Promise((resolve) => child.stdout.once("data", resolve))));
    // What it says comes before it becomes `sleep`.
    await new Promise((resolve) => setTimeout(resolve, 100));
    bench.signal.throwIfAborted();
    const pids = children.flatMap((child) => processTree(child.pid ?? -1));
    return { proportional: proportionalBytes(pids) / count, host: (before - readAvailableMemory()) / count };
  } finally {
    for (const child of children) {
      // The second bwrap is PID 1 inside: with it goes the sleeper.
      for (const pid of processTree(child.pid ?? -1).reverse()) killQuietly(pid);
    }
    await Promise.all(children.map(exitOf));
  }
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // Gone with its parent.
  }
}

export const idleMemory: Figure = {
  name: "idle-memory",
  title: "An idle sandbox: memory of its processes, shared pages in parts",
  async run(bench): Promise<Row[]> {
    const rows: Row[] = [];
    const rounds = bench.quick ? 1 : 3;
    for (const count of [1, bench.quick ? 10 : 100]) {
      const ours: Cost[] = [];
      const theirs: Cost[] = [];
      for (let round = 0; round < rounds; round++) {
        ours.push(await costOfOurs(bench, count));
        theirs.push(await costOfBubblewrap(bench, count));
      }
      const each = (costs: readonly Cost[], key: keyof Cost) => costs.map((cost) => [cost[key]]);
      const peer = (key: keyof Cost) => ({ name: "bwrap, sleep", rounds: each(theirs, key) });
      rows.push(
        createRow(`each of ${count}`, "bytes", each(ours, "proportional"), {
          peer: peer("proportional"),
          goal: { kind: "value", atMost: MIB },
        }),
      );
      if (count === 1) continue;
      rows.push(createRow(`each of ${count}, kernel included`, "bytes", each(ours, "host"), { peer: peer("host") }));
    }
    return rows;
  },
};

/** A thousand sandboxes alive at once. */
import type { Sandbox } from "@holdfast/engine";
import { DEFAULT_SANDBOX_LIMITS } from "@holdfast/protocol";
import { type Bench, compareInTurns, createRow, type Figure, type Row, timed } from "./harness.js";
import { readAvailableMemory } from "./host-facts.js";
import { plainSpawn } from "./peers.js";
import { runTrue } from "./sandboxes.js";

const AT_ONCE = 8;
/** Small ones: a thousand of them are to fit into what the host can promise. */
const LIMITS = { ...DEFAULT_SANDBOX_LIMITS, memoryBytes: 10 * 2 ** 20, pids: 16, diskBytes: 8 * 2 ** 20 };

async function inParallel(count: number, work: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

async function createAll(bench: Bench, sandboxes: Sandbox[], count: number): Promise<{ all: number; each: number[] }> {
  const each: number[] = [];
  const all = await timed(() =>
    inParallel(count, async () => {
      bench.signal.throwIfAborted();
      each.push(
        await timed(async () => {
          sandboxes.push(await bench.engine.create({ limits: LIMITS }));
        }),
      );
    }),
  );
  return { all, each };
}

/** As the server does it by default: each sandbox every five seconds, its processes by kind every thirty, the host every second. */
const LOOK_SECONDS = 5;
const COUNT_EVERY = 6;
/** 3 % of one core for a thousand. */
const WATCH_GOAL_MS = 30;

/** CPU time a second that looking at all of them for pressure takes. */
function watchAll(bench: Bench, sandboxes: readonly Sandbox[]): number {
  const before = process.cpuUsage();
  for (let round = 0; round < COUNT_EVERY; round++) {
    for (let second = 0; second < LOOK_SECONDS; second++) bench.engine.pressure();
    for (const { gauge } of sandboxes) {
      gauge.read();
      if (round === 0) gauge.countProcesses();
    }
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000 / (COUNT_EVERY * LOOK_SECONDS);
}

export const thousandIdle: Figure = {
  name: "thousand-idle",
  title: `Many idle sandboxes alive at once, ${AT_ONCE} created and destroyed at a time`,
  async run(bench): Promise<Row[]> {
    const count = bench.quick ? 50 : 1000;
    const sandboxes: Sandbox[] = [];
    const rows: Row[] = [];
    let destroyed: number;
    try {
      const availableBefore = readAvailableMemory();
      const rssBefore = process.memoryUsage.rss();
      const { all, each } = await createAll(bench, sandboxes, count);
      const note = `${sandboxes.length} of ${count} alive`;
      rows.push(
        createRow(`create all ${count}`, "ms", [[all]], { note }),
        createRow("  of it: each", "ms", [each]),
        createRow("this process grew, for each", "bytes", [[(process.memoryUsage.rss() - rssBefore) / count]]),
        createRow("the host has less, for each", "bytes", [[(availableBefore - readAvailableMemory()) / count]]),
      );
      const watched = Array.from({ length: bench.quick ? 3 : 10 }, () => watchAll(bench, sandboxes));
      rows.push(
        createRow("CPU time a second to watch all for pressure", "ms", [watched], {
          goal: { kind: "value", atMost: (WATCH_GOAL_MS * count) / 1000 },
        }),
      );
      const one = sandboxes[Math.floor(count / 2)];
      if (one === undefined) throw new Error("no sandbox was made");
      const ours = { name: "ours", measure: () => timed(() => runTrue(one)) };
      const turns = { rounds: bench.quick ? 1 : 3, turns: 100, roundMs: 500, signal: bench.signal };
      rows.push(...(await compareInTurns("a command in one of them", ours, [plainSpawn], turns)));
    } finally {
      destroyed = await timed(() =>
        inParallel(sandboxes.length, async (index) => {
          await sandboxes[index]?.kill("the benchmark");
        }),
      );
    }
    return [...rows, createRow(`destroy all ${count}`, "ms", [[destroyed]])];
  },
};

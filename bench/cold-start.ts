/** A sandbox for one command: made, used once, destroyed. */

import { dockerRun } from "./docker.js";
import {
  type Bench,
  compareInTurns,
  createRow,
  type Figure,
  type Row,
  type Turns,
  takeTurns,
  timed,
} from "./harness.js";
import { bubblewrap, ociRun } from "./peers.js";
import { runTrue } from "./sandboxes.js";

const GOAL = { bwrap: { kind: "ratio", atMost: 2 } } as const;

interface Parts {
  readonly create: number[];
  readonly command: number[];
  readonly destroy: number[];
}

async function wholeLife(bench: Bench, parts?: Parts): Promise<number> {
  const start = performance.now();
  const sandbox = await bench.engine.create({});
  const created = performance.now();
  await runTrue(sandbox);
  const ran = performance.now();
  await sandbox.kill("the benchmark");
  const gone = performance.now();
  parts?.create.push(created - start);
  parts?.command.push(ran - created);
  parts?.destroy.push(gone - ran);
  return gone - start;
}

export const coldStart: Figure = {
  name: "cold-start",
  title: "A sandbox for one command: create, run /bin/true, destroy",
  async run(bench): Promise<Row[]> {
    const { signal, quick } = bench;
    const peers = [bubblewrap, await ociRun(bench, "runc"), await ociRun(bench, "runsc"), await dockerRun(bench)];
    const turns: Turns = { rounds: quick ? 1 : 3, turns: quick ? 5 : 40, roundMs: quick ? 2000 : 4000, signal };
    const parts: Parts = { create: [], command: [], destroy: [] };
    const ours = { name: "ours", measure: () => wholeLife(bench, parts) };
    const busy = await compareInTurns("one after the other", ours, peers, { ...turns, goals: GOAL });
    const partRows = Object.entries(parts).map(([name, values]: [string, number[]]) =>
      // The first of each is the one that takeTurns does not count either.
      createRow(`  of it: ${name}`, "ms", [values.slice(1)]),
    );
    const quiet = await compareInTurns(
      "each after 100 ms of quiet",
      { name: "ours", measure: () => wholeLife(bench) },
      [bubblewrap],
      { ...turns, turns: quick ? 3 : 12, pauseMs: 100, goals: GOAL },
    );
    return [...busy, ...partRows, ...quiet, ...(await twoAtOnce(bench, turns))];
  },
};

/** Several at once, as a server has them: a core for each, and what they wait for on each other shows. */
async function twoAtOnce(bench: Bench, turns: Turns): Promise<Row[]> {
  const at = 4;
  const all = (one: () => Promise<unknown>) => timed(() => Promise.all(Array.from({ length: at }, one)));
  const name = `bwrap, ${at} at once`;
  const values = await takeTurns(
    [
      { name: "ours", measure: () => all(() => wholeLife(bench)) },
      { name, measure: () => all(() => ("absent" in bubblewrap ? Promise.resolve() : bubblewrap.measure())) },
    ],
    { ...turns, turns: bench.quick ? 3 : 12 },
  );
  return [
    createRow(`${at} at once, all of them`, "ms", values.get("ours") ?? [], {
      peer: { name, rounds: values.get(name) ?? [] },
    }),
  ];
}

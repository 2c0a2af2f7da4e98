/** A program that takes 640 MiB: with a limit that grows from 128 MiB, and with one that is high enough from the beginning. */

import type { Sandbox } from "@holdfast/engine";
import { type Bench, compareInTurns, createRow, type Figure, type Row, type Subject } from "./harness.js";
import { ALL_CPUS, limitsWith } from "./sandboxes.js";

const MIB = 1024 * 1024;
const GOAL_MS = 50;
/** In steps of 16 MiB; says the longest that one of them took beyond the usual, and how long all took. */
const PROGRAM = `
const times = [], kept = [];
for (let i = 0; i < 40; i++) {
  const begin = performance.now();
  kept.push(Buffer.alloc(16 * 1048576, 1));
  times.push(performance.now() - begin);
}
const all = times.reduce((sum, each) => sum + each, 0);
times.sort((a, b) => a - b);
console.log(JSON.stringify({ stall: times.at(-1) - times[20], all }));
`;

async function outputOf(sandbox: Sandbox): Promise<{ stall: number; all: number }> {
  const command = await sandbox.start({ argv: ["node", "-e", PROGRAM] });
  let text = "";
  for await (const event of command.output()) if (event.kind === "data") text += event.bytes.toString();
  const { cause } = await command.ended;
  if (cause.kind !== "exited" || cause.code !== 0) throw new Error(`the program ended by ${JSON.stringify(cause)}`);
  return JSON.parse(text) as { stall: number; all: number };
}

function subject(bench: Bench, name: string, startBytes: number, what: "stall" | "all", seen: number[] = []): Subject {
  const limits = limitsWith({ memoryBytes: startBytes, memoryMaxBytes: 1024 * MIB, cpuMillis: ALL_CPUS });
  return {
    name,
    async measure() {
      const sandbox = await bench.engine.create({ limits });
      try {
        const figures = await outputOf(sandbox);
        seen.push(...sandbox.limitHistory.flatMap(({ heldMs }) => heldMs ?? []));
        return figures[what];
      } finally {
        await sandbox.kill("the benchmark");
      }
    },
  };
}

export const growingMemory: Figure = {
  name: "growing-memory",
  title: "A memory limit that grows from 128 MiB while a program takes 640 MiB",
  async run(bench): Promise<Row[]> {
    const turns = { rounds: bench.quick ? 1 : 3, turns: bench.quick ? 3 : 15, roundMs: 30_000, signal: bench.signal };
    const held: number[] = [];
    const rows: Row[] = [];
    for (const [what, text] of [
      ["stall", "the longest that it stood still"],
      ["all", "all of it"],
    ] as const) {
      const ours = subject(bench, "ours", 128 * MIB, what, held);
      const fixed = subject(bench, "1 GiB at once", 1024 * MIB, what);
      const goals = what === "stall" ? { "1 GiB at once": { kind: "value", atMost: GOAL_MS } as const } : {};
      rows.push(...(await compareInTurns(text, ours, [fixed], { ...turns, goals })));
    }
    if (held.length > 0) rows.push(createRow("held at the limit until it was raised", "ms", [held]));
    return rows;
  },
};

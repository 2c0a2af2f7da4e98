/** A program that takes 640 MiB: with a limit that grows from 128 MiB, and with one that is high enough from the beginning. */
import type { Sandbox } from "@holdfast/engine";
import { type Bench, compareInTurns, createRow, type Figure, type Row, type Subject } from "./harness.js";
import { ALL_CPUS, limitsWith } from "./sandboxes.js";

const MIB = 1024 * 1024;
const GOAL_MS = 50;

/** Each says the longest that one of its steps took beyond the usual, and how long all took. */
const PROGRAMS = {
  /** In steps of 16 MiB. */
  steady: [
    "node",
    "-e",
    `
const times = [], kept = [];
for (let i = 0; i < 40; i++) {
  const begin = performance.now();
  kept.push(Buffer.alloc(16 * 1048576, 1));
  times.push(performance.now() - begin);
}
const all = times.reduce((sum, each) => sum + each, 0);
times.sort((a, b) => a - b);
console.log(JSON.stringify({ stall: times.at(-1) - times[20], all }));
`,
  ],
  /** A huge page at a time, as fast as the kernel gives them: faster than anybody who watches can follow. */
  rushing: [
    "python3",
    "-c",
    `
import json, mmap, time
memory = mmap.mmap(-1, 640 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
times, begin = [], time.monotonic()
for at in range(0, 640 << 20, 2 << 20):
    memory[at] = 1
    now = time.monotonic()
    times.append(1000 * (now - begin))
    begin = now
times.sort()
print(json.dumps({"stall": times[-1] - times[len(times) // 2], "all": sum(times)}))
`,
  ],
} as const;

type Program = keyof typeof PROGRAMS;

async function outputOf(sandbox: Sandbox, program: Program): Promise<{ stall: number; all: number }> {
  const command = await sandbox.start({ argv: PROGRAMS[program] });
  let text = "";
  for await (const event of command.output()) if (event.kind === "data") text += event.bytes.toString();
  const { cause } = await command.ended;
  if (cause.kind !== "exited" || cause.code !== 0) throw new Error(`the program ended by ${JSON.stringify(cause)}`);
  return JSON.parse(text) as { stall: number; all: number };
}

interface Measured {
  readonly program: Program;
  readonly startBytes: number;
  readonly what: "stall" | "all";
  readonly held?: number[];
}

function subject(bench: Bench, name: string, { program, startBytes, what, held }: Measured): Subject {
  const limits = limitsWith({ memoryBytes: startBytes, memoryMaxBytes: 1024 * MIB, cpuMillis: ALL_CPUS });
  return {
    name,
    async measure() {
      const sandbox = await bench.engine.create({ limits });
      try {
        const figures = await outputOf(sandbox, program);
        held?.push(...sandbox.limitHistory.flatMap(({ heldMs }) => heldMs ?? []));
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
    for (const [program, what, text] of [
      ["steady", "stall", "the longest that it stood still"],
      ["steady", "all", "all of it"],
      ["rushing", "stall", "by huge pages: the longest that it stood still"],
    ] as const) {
      const ours = subject(bench, "ours", { program, startBytes: 128 * MIB, what, held });
      const fixed = subject(bench, "1 GiB at once", { program, startBytes: 1024 * MIB, what });
      const goals = what === "stall" ? { "1 GiB at once": { kind: "value", atMost: GOAL_MS } as const } : {};
      rows.push(...(await compareInTurns(text, ours, [fixed], { ...turns, goals })));
    }
    if (held.length > 0) rows.push(createRow("held at the limit until it was raised", "ms", [held]));
    return rows;
  },
};

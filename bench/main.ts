/** `npm run bench [-- NAME… --quick --json FILE --docker]`: takes the figures, prints one table, writes one JSON file. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { BubblewrapEngine } from "@holdfast/engine";
import { admission } from "./admission.js";
import { coldStart } from "./cold-start.js";
import { growingMemory } from "./growing-memory.js";
import type { Bench, Figure } from "./harness.js";
import { readHostFacts, readLoad } from "./host-facts.js";
import { idleMemory } from "./idle-memory.js";
import { imageBuild } from "./image-build.js";
import { imageCreate } from "./image-create.js";
import { imageFork } from "./image-fork.js";
import { imageMove } from "./image-move.js";
import { killTree } from "./kill-tree.js";
import { liveCommand } from "./live-command.js";
import { outOfMemory } from "./out-of-memory.js";
import { type FigureResult, formatReport, type Report } from "./report.js";
import { serverCommand } from "./server-command.js";
import { serverCreate } from "./server-create.js";
import { serverCrowd } from "./server-crowd.js";
import { serverFiles } from "./server-files.js";
import { serverOutput } from "./server-output.js";
import { serverThousand } from "./server-thousand.js";
import { thousandIdle } from "./thousand-idle.js";
import { throughput } from "./throughput.js";
import { warmCreate } from "./warm-create.js";

const FIGURES: readonly Figure[] = [
  coldStart,
  warmCreate,
  liveCommand,
  idleMemory,
  thousandIdle,
  killTree,
  outOfMemory,
  growingMemory,
  admission,
  throughput,
  imageCreate,
  imageFork,
  imageBuild,
  imageMove,
  serverCreate,
  serverCommand,
  serverOutput,
  serverFiles,
  serverThousand,
  serverCrowd,
];
const DEFAULT_JSON = "bench/results/latest.json";
const HELP = `npm run bench -- [NAME…] [--quick] [--json FILE] [--docker] [--profile DIR]

  NAME          only these figures: ${FIGURES.map((figure) => figure.name).join(", ")}
  --quick       few turns: shows that everything works, not how fast it is
  --json FILE   where the figures go as JSON (default ${DEFAULT_JSON})
  --docker      start a Docker daemon for the comparison if there is none (needs dockerd)
  --profile DIR write CPU profiles of the server, one for each of its figures, and of whoever moves images; they slow
                them down

  HOLDFAST_BENCH_GIB    how large the image is that image-move moves (default 4; 0.25 with --quick)
  HOLDFAST_BENCH_MOVES  only these directions of image-move, by words of their names: import,push
  HOLDFAST_BENCH_BASE   if set, image-create also builds the base image, for which it needs a Debian mirror
`;

type Undo = () => Promise<void> | void;

/** Ctrl-C once: no further turn, everything is cleaned up, no table. Twice: at once, and a sweep is for you to do. */
function listenForInterrupt(): AbortSignal {
  const controller = new AbortController();
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(130);
      process.stderr.write("\ncleaning up; once more to leave everything as it is\n");
      controller.abort(new Error(`interrupted by ${name}`));
    });
  }
  return controller.signal;
}

async function undoAll(undos: Undo[]): Promise<void> {
  for (let undo = undos.pop(); undo !== undefined; undo = undos.pop()) {
    try {
      await undo();
    } catch (error) {
      process.stderr.write(`clean-up: ${(error as Error).message}\n`);
    }
  }
}

async function takeFigure(figure: Figure, bench: Bench): Promise<FigureResult> {
  const start = performance.now();
  const done = (rest: Pick<FigureResult, "rows" | "failure">): FigureResult => ({
    figure: { name: figure.name, title: figure.title },
    seconds: (performance.now() - start) / 1000,
    ...rest,
  });
  try {
    return done({ rows: await figure.run(bench) });
  } catch (error) {
    bench.signal.throwIfAborted();
    return done({ rows: [], failure: (error as Error).message });
  }
}

async function takeFigures(figures: readonly Figure[], given: Omit<Bench, "onEnd" | "engine">): Promise<Report> {
  const loadBefore = readLoad();
  const start = performance.now();
  const results: FigureResult[] = [];
  const undos: Undo[] = [];
  const engine = await BubblewrapEngine.open({ stateDirectory: given.stateDirectory });
  undos.push(() => engine.close({ sandboxes: "kill" }));
  const bench: Bench = { ...given, engine, onEnd: (undo) => void undos.push(undo) };
  try {
    for (const figure of figures) {
      bench.signal.throwIfAborted();
      bench.say(`${figure.name} ... `);
      const result = await takeFigure(figure, bench);
      bench.say(`${result.seconds.toFixed(1)} s\n`);
      results.push(result);
    }
  } finally {
    await undoAll(undos);
  }
  return {
    date: new Date().toISOString(),
    quick: bench.quick,
    host: await readHostFacts(),
    loadBefore,
    loadAfter: readLoad(),
    seconds: (performance.now() - start) / 1000,
    figures: results,
  };
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      quick: { type: "boolean", default: false },
      json: { type: "string", default: DEFAULT_JSON },
      docker: { type: "boolean", default: false },
      profile: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  const unknown = positionals.filter((name) => FIGURES.every((figure) => figure.name !== name));
  if (values.help || unknown.length > 0) {
    if (unknown.length > 0) process.stderr.write(`There is no figure "${unknown.join('", "')}".\n\n`);
    process.stdout.write(HELP);
    return values.help ? 0 : 1;
  }
  const figures = positionals.length === 0 ? FIGURES : FIGURES.filter(({ name }) => positionals.includes(name));
  const scratchDirectory = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  const signal = listenForInterrupt();
  try {
    const report = await takeFigures(figures, {
      scratchDirectory,
      stateDirectory: join(scratchDirectory, "state"),
      quick: values.quick,
      signal,
      mayStartDocker: values.docker,
      profileDirectory: values.profile === undefined ? undefined : resolve(values.profile),
      say: (text) => void process.stderr.write(text),
    });
    process.stdout.write(`\n${formatReport(report)}`);
    const path = resolve(values.json);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `${JSON.stringify(report, null, 2)}\n`);
    process.stdout.write(`${path}\n`);
    return report.figures.some((result) => result.failure !== undefined) ? 1 : 0;
  } finally {
    rmSync(scratchDirectory, { recursive: true, force: true });
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`\n${(error as Error).message}\n`);
  process.exitCode = 1;
}

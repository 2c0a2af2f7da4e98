/** `holdfast tour`: hostile programs, one after the other, and a neighbour that must not notice. */
import { BubblewrapEngine, DEFAULT_STATE_DIRECTORY, type SandboxStats } from "@holdfast/engine";
import { formatBytes, formatDuration } from "@holdfast/protocol";
import { type EngineFlags, parseEngineFlags } from "../engine-options.js";
import { coloursFor } from "../text/colours.js";
import { howToCallUs } from "../text/how-to-call-us.js";
import { formatTable } from "../text/table.js";
import { describeChange, readHostState } from "./host-state.js";
import { describeLeftovers } from "./leftovers.js";
import { Neighbour } from "./neighbour.js";
import { HOSTILE_PROGRAMS, type HostileProgram } from "./programs.js";
import { describeCause, isAsExpected } from "./result-text.js";
import { type ProgramResult, runHostileProgram } from "./run-program.js";

export type TourFlags = EngineFlags;

const colours = coloursFor(process.stdout);
const print = (text: string): void => void process.stdout.write(text);

export async function tour(flags: TourFlags): Promise<number> {
  const options = parseEngineFlags(flags);
  const stateDirectory = options.stateDirectory ?? process.env.HOLDFAST_STATE_DIR ?? DEFAULT_STATE_DIRECTORY;
  const start = performance.now();
  const engine = await BubblewrapEngine.open(options);
  const interrupt = closeOnSignal(engine);
  try {
    const before = readHostState(stateDirectory);
    print(`Five hostile programs, each in a sandbox of its own, and a neighbour that just wants to work.\n\n`);
    const neighbour = await Neighbour.moveIn(engine);
    const results: ProgramResult[] = [];
    for (const program of HOSTILE_PROGRAMS) results.push(await showProgram(engine, program, stateDirectory));
    const neighbourText = await neighbour.moveOut();
    print(`\n${resultTable(results)}\n`);
    print(`The neighbour: ${neighbourText}.\n`);
    print(`The host: ${describeChange(before, readHostState(stateDirectory))}.\n`);
    print(`All of it took ${formatDuration(performance.now() - start)}.
`);
    return conclude(results, neighbour.failures);
  } finally {
    interrupt.off();
    await engine.close({ sandboxes: "kill" });
  }
}

async function showProgram(
  engine: BubblewrapEngine,
  program: HostileProgram,
  stateDirectory: string,
): Promise<ProgramResult> {
  const title = `  ${program.name.padEnd(12)}${program.tries}`;
  const live = process.stdout.isTTY === true;
  const onProgress = (stats: SandboxStats): void => {
    if (live) print(`\r\u001b[K${title} … ${colours.dim(describeStats(stats))}`);
  };
  if (live) print(`${title} …`);
  const result = await runHostileProgram(engine, program, { stateDirectory, onProgress });
  const kind = isAsExpected(result) ? colours.green(result.ending.cause.kind) : colours.red(result.ending.cause.kind);
  print(`${live ? "\r\u001b[K" : ""}${title}: ${kind}\n`);
  return result;
}

function describeStats(stats: SandboxStats): string {
  const disk = stats.diskBytes === null ? "" : `, disk ${formatBytes(stats.diskBytes)}`;
  return `memory ${formatBytes(stats.memoryBytes)}, processes ${stats.pids}${disk}, CPU ${formatDuration(stats.cpuMs)}`;
}

function resultTable(results: readonly ProgramResult[]): string {
  const head = ["program", "tried", "cause", "took", "left behind", "evidence"].map(colours.bold);
  const rows = results.map((result) => [
    result.program.name,
    result.program.tries,
    isAsExpected(result) ? colours.green(result.ending.cause.kind) : colours.red(result.ending.cause.kind),
    formatDuration(result.tookMs),
    describeLeftovers(result.leftovers),
    describeCause(result),
  ]);
  return formatTable([head, ...rows], process.stdout.columns === undefined ? {} : { width: process.stdout.columns });
}

function conclude(results: readonly ProgramResult[], neighbourFailures: number): number {
  const wrong = results.filter((result) => !isAsExpected(result));
  for (const { program, ending } of wrong) {
    print(
      `${colours.red("Not as it should be:")} ${program.name} ended with ${ending.cause.kind}, not ${program.expected}. ${ending.message}\n`,
    );
  }
  const dirty = results.filter((result) => describeLeftovers(result.leftovers) !== "nothing");
  if (wrong.length > 0 || dirty.length > 0 || neighbourFailures > 0) return 1;
  const holdfast = howToCallUs();
  print(`
Now try:
  ${holdfast} run -- echo hello                          something of your own
  ${holdfast} run --memory 64m --json -- tail /dev/zero  the first one again, its end as JSON
  ${holdfast} run -it -- bash                            a look around inside
  ${holdfast} doctor                                     what enforces all this on your host
`);
  return 0;
}

/** Ctrl-C takes the sandboxes along. A second one does not wait. */
function closeOnSignal(engine: BubblewrapEngine): { off(): void } {
  const onSignal = (signal: NodeJS.Signals): void => {
    off();
    void engine.close({ sandboxes: "kill" }).finally(() => process.exit(signal === "SIGINT" ? 130 : 143));
  };
  const off = (): void => {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  return { off };
}

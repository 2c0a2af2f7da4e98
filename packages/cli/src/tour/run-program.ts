/** One hostile program in a sandbox of its own, from its start to what is left of it. */
import type { Command, Engine, Sandbox, SandboxStats } from "@holdfast/engine";
import { type CommandEnding, resolveSandboxLimits } from "@holdfast/protocol";
import { findLeftovers, type Leftovers } from "./leftovers.js";
import type { HostileProgram } from "./programs.js";

export interface ProgramResult {
  readonly program: HostileProgram;
  readonly ending: CommandEnding;
  /** From the creation of the sandbox until nothing of it was left. */
  readonly tookMs: number;
  readonly leftovers: Leftovers;
  /** Of its output, what can still be read after the end. */
  readonly keptBytes: number;
  /** How much memory this process took in the meantime. */
  readonly ourGrowthBytes: number;
}

const WATCH_MS = 100;

export async function runHostileProgram(
  engine: Engine,
  program: HostileProgram,
  options: { readonly stateDirectory: string; readonly onProgress: (stats: SandboxStats) => void },
): Promise<ProgramResult> {
  const start = performance.now();
  const ourBytesBefore = process.memoryUsage.rss();
  const limits = resolveSandboxLimits(program.limits);
  const sandbox = await engine.create({ limits, whenOwnerDies: "end", hostname: program.name });
  const watch = setInterval(() => {
    // The sandbox may end between the question and the answer.
    sandbox.stats().then(options.onProgress, () => {});
  }, WATCH_MS);
  let ending: CommandEnding;
  let keptBytes: number;
  try {
    const command = await sandbox.start({
      argv: program.argv,
      limits: { wallMs: program.timeoutMs },
      graceMs: program.graceMs,
      whenReaderIsSlow: "drop",
    });
    if (!program.unread) void swallow(command);
    ending = await command.ended;
    keptBytes = await countKept(sandbox, command);
  } finally {
    clearInterval(watch);
    await sandbox.kill("the end of the tour");
  }
  const leftovers = findLeftovers(sandbox.id, options.stateDirectory);
  const ourGrowthBytes = Math.max(0, process.memoryUsage.rss() - ourBytesBefore);
  return { program, ending, tookMs: performance.now() - start, leftovers, keptBytes, ourGrowthBytes };
}

async function swallow(command: Command): Promise<void> {
  for await (const _ of command.output()) {
    // Nobody wants to see it.
  }
}

/** What a reader that comes after the end still gets: the head and the tail. */
async function countKept(sandbox: Sandbox, command: Command): Promise<number> {
  if (sandbox.state === "ended") return 0;
  const again = await sandbox.attach(command.id, { from: { stdout: 0, stderr: 0 } });
  let bytes = 0;
  for await (const event of again.output()) if (event.kind === "data") bytes += event.bytes.length;
  return bytes;
}

/**
 * `holdfast run`: one sandbox, one command in it, and nothing left of either. The steps, in order: read the flags, open
 * the engine, sweep what dead runs left, make the sandbox, start the command, join its output, input, signals and
 * terminal with ours, take the sandbox away, report.
 */
import { once } from "node:events";
import { statSync } from "node:fs";
import type { ReadStream, WriteStream } from "node:tty";
import type { BubblewrapEngine, Command, Sandbox } from "@holdfast/engine";
import { type CommandEnding, HoldfastError, resolveSandboxLimits, signalNumber } from "@holdfast/protocol";
import { noteWarnings } from "../images/open-local-images.js";
import { memoryDifference } from "../text/memory-difference.js";
import { note, noteError } from "../text/notes.js";
import { READER_GONE } from "./exit-code.js";
import { nameFlag } from "./name-flag.js";
import type { FoundImage } from "./named-image.js";
import { OutputPump, rejectLostOutput } from "./output-pump.js";
import { planRun, type RunFlags, type RunPlan } from "./plan.js";
import { notesOfEnding, type RunReport, reportOfEnding, reportOfError } from "./report.js";
import { SignalForwarder } from "./signals.js";
import { sizeOf, Terminal } from "./terminal.js";
import { writeReport } from "./write-report.js";

/** How long a reader may take nothing before a run that was ended by force stops waiting for it. */
const STALLED_MS = 2000;
/** A guest that does not report the end of a command that we killed is ended with it. */
const BACKUP_KILL_MS = 2000;

/** Resolves to what the process shall exit with. */
export async function run(argv: readonly string[], flags: RunFlags): Promise<number> {
  const pump = new OutputPump(process);
  let report: RunReport;
  try {
    const plan = planRun(argv, flags, {
      env: process.env,
      stdinIsTerminal: process.stdin.isTTY === true,
      size: sizeOf(process.stdout),
    });
    checkDirectory(plan);
    report = await runPlan(plan, pump);
  } catch (reason) {
    noteError(reason);
    report = reportOfError(HoldfastError.from(reason), undefined);
  }
  try {
    await writeReport(report, flags, pump);
  } catch (reason) {
    noteError(new HoldfastError("invalid_argument", `--json-file: ${HoldfastError.from(reason).message}`));
    return report.exitCode === 0 ? 125 : report.exitCode;
  }
  await pump.flush();
  return report.exitCode;
}

/** Said here, where more than directories are images. */
function checkDirectory({ sandbox: { image } }: RunPlan): void {
  if (image?.kind !== "rootfs") return;
  if (statSync(image.path, { throwIfNoEntry: false })?.isDirectory() === true) return;
  throw new HoldfastError("image_not_found", `no directory at ${image.path}`, {
    hint: "An image is a name (`holdfast image ls` shows them), `host`, or the path of a root file system directory.",
    details: { field: "--image" },
  });
}

async function runPlan(plan: RunPlan, pump: OutputPump): Promise<RunReport> {
  const signals = new SignalForwarder(plan.graceMs);
  const fatal = fatalErrors();
  let engine: BubblewrapEngine | undefined;
  let found: FoundImage | undefined;
  let sandbox: Sandbox | undefined;
  try {
    const { BubblewrapEngine, defaultLimitsFor, describeWaiting } = await import("@holdfast/engine");
    engine = await BubblewrapEngine.open({ ...plan.engine, log: noteWarnings });
    for (const { id, why } of await engine.sweep({ which: "abandoned" }))
      note(`swept away what was left of sandbox ${id}: ${why}`);
    if (plan.named !== undefined) {
      const { findNamedImage } = await import("./named-image.js");
      found = await findNamedImage(engine, plan, plan.named, signals.early);
      const difference = memoryDifference(found.memory);
      if (difference !== undefined) note(difference);
    }
    const limits = resolveSandboxLimits({ ...defaultLimitsFor(await engine.capacity()), ...plan.asked });
    sandbox = await engine.create(
      { ...plan.sandbox, limits, ...found?.spec },
      {
        signal: signals.early,
        admission: { waitMs: plan.waitMs, onWaiting: (waiting) => note(describeWaiting(waiting)) },
      },
    );
    const work = async (made: Sandbox): Promise<CommandEnding> => {
      const command = (await found?.prepare(made, signals.early)) ?? plan.command;
      return runIn(made, { ...plan, command }, pump, signals);
    };
    const ending = await Promise.race([work(sandbox), fatal]);
    for (const text of notesOfEnding(ending)) note(text);
    return reportOfEnding(ending, sandbox.id, found === undefined ? {} : { image: found.image, memory: found.memory });
  } catch (reason) {
    const error = nameFlag(reason);
    const { received } = signals;
    if (error.code === "canceled" && received !== undefined) {
      return reportOfError(error, sandbox?.id, 128 + signalNumber(received));
    }
    noteError(error);
    return reportOfError(error, sandbox?.id);
  } finally {
    await sandbox?.kill("the end of the run");
    await found?.close();
    await engine?.close({ sandboxes: "kill" });
    // Last: a signal during the clean-up must not cut it short.
    signals.release();
  }
}

/** A bug of ours must not keep a sandbox: it is raced against the run, so that the way out is the usual one. */
function fatalErrors(): Promise<never> {
  const fatal = new Promise<never>((_resolve, reject) => {
    process.on("uncaughtException", reject);
    process.on("unhandledRejection", reject);
  });
  fatal.catch(() => {});
  return fatal;
}

async function runIn(
  sandbox: Sandbox,
  plan: RunPlan,
  pump: OutputPump,
  signals: SignalForwarder,
): Promise<CommandEnding> {
  const command = await sandbox.start(plan.command);
  const terminal = new Terminal(process.stdin as ReadStream, process.stdout as WriteStream);
  try {
    const forced = new AbortController();
    const end = (by: string): void => {
      forced.abort();
      endNow(command, sandbox, by);
    };
    signals.aimAt({ signal: (signal, options) => command.signal(signal, options), end });
    void pump.broken.then(() => end(READER_GONE));
    if (plan.tty) terminal.followSize((size) => command.resize(size));
    if (plan.tty && plan.interactive) terminal.setRaw();
    if (plan.interactive) feed(command);
    const ending = await deliver(command, pump, forced.signal);
    if (pump.isBroken) rejectLostOutput(await pump.broken);
    return ending;
  } finally {
    process.stdin.destroy();
    terminal.restore();
  }
}

function endNow(command: Command, sandbox: Sandbox, by: string): void {
  command.cancel(by, { graceMs: 0 }).catch(() => sandbox.kill(by));
  setTimeout(() => void sandbox.kill(by), BACKUP_KILL_MS).unref();
}

/** Our stdin to the command's; its end is its end. A command that does not read it is no error. */
function feed(command: Command): void {
  const { stdin } = command;
  if (stdin === undefined) return;
  stdin.on("error", () => process.stdin.unpipe(stdin));
  process.stdin.on("error", () => stdin.end());
  process.stdin.pipe(stdin);
}

/** The ending, after all output went to our reader. Only an end by force does not wait for a reader that takes nothing. */
async function deliver(command: Command, pump: OutputPump, forced: AbortSignal): Promise<CommandEnding> {
  const pumping = pump.run(command.output());
  pumping.catch(() => {});
  const ending = await command.ended;
  const { kind } = ending.cause;
  const wasForced = kind === "timed_out" || kind === "canceled" || forced.aborted;
  const byForce = wasForced ? Promise.resolve() : once(forced, "abort").then(() => {});
  const gaveUp = byForce.then(() => stalled(pump)).then(() => "stalled" as const);
  if ((await Promise.race([pumping, gaveUp])) === "stalled" && !pump.isBroken) {
    note("nobody took the rest of the output, and it is lost");
  }
  return ending;
}

async function stalled(pump: OutputPump): Promise<void> {
  for (let before = -1; before !== pump.progress; ) {
    before = pump.progress;
    await new Promise((resolve) => setTimeout(resolve, STALLED_MS));
  }
}

/** `holdfast exec`: one command in a sandbox of the server, joined with our output, input, signals and terminal. */
import { Readable } from "node:stream";
import type { ReadStream, WriteStream } from "node:tty";
import { type CommandEnding, HoldfastError, signalNumber } from "@holdfast/protocol";
import type { Command, Sandbox, StreamedCommand } from "@holdfast/sdk";
import { exitCodeOfEnding, READER_GONE } from "../run/exit-code.js";
import { nameFlag } from "../run/name-flag.js";
import { OutputPump, rejectLostOutput } from "../run/output-pump.js";
import { notesOfEnding, type RunReport, reportOfEnding, reportOfError } from "../run/report.js";
import { SignalForwarder } from "../run/signals.js";
import { sizeOf, Terminal } from "../run/terminal.js";
import { writeReport } from "../run/write-report.js";
import { note, noteError } from "../text/notes.js";
import { type ExecFlags, type ExecPlan, planExec } from "./exec-plan.js";
import { outputEvents } from "./output-events.js";
import { ServerClient } from "./server-client.js";

/** Between the first signal to us and an end by force. */
const GRACE_MS = 2000;
/** How long a reader may take nothing before a command that was ended by force is not waited for. */
const STALLED_MS = 2000;

/** Resolves to what the process shall exit with. */
export async function exec(name: string, argv: readonly string[], flags: ExecFlags): Promise<number> {
  const pump = new OutputPump(process);
  let report: RunReport;
  try {
    const plan = planExec(argv, flags, {
      env: process.env,
      stdinIsTerminal: process.stdin.isTTY === true,
      size: sizeOf(process.stdout),
    });
    const server = await ServerClient.open(flags);
    const sandbox = await server.find(name);
    if (plan.detach) return await startDetached(sandbox, plan, flags.json === true);
    report = await execPlan(sandbox, plan, pump);
  } catch (reason) {
    const error = nameFlag(reason);
    noteError(error);
    report = reportOfError(error, undefined);
  }
  await writeReport(report, { json: flags.json }, pump);
  await pump.flush();
  return report.exitCode;
}

async function startDetached(sandbox: Sandbox, plan: ExecPlan, json: boolean): Promise<number> {
  const { argv, ...options } = plan.body;
  const command = await sandbox.start(argv, options);
  process.stdout.write(`${json ? JSON.stringify(await command.info()) : command.id}\n`);
  return 0;
}

async function execPlan(sandbox: Sandbox, plan: ExecPlan, pump: OutputPump): Promise<RunReport> {
  const signals = new SignalForwarder(GRACE_MS);
  const leaving = new AbortController();
  const starting = AbortSignal.any([signals.early, leaving.signal]);
  try {
    const { argv, ...options } = plan.body;
    const attached = await sandbox.stream(argv, { ...options, signal: starting });
    const { ending, by } = await join(attached, plan, pump, { signals, leaving });
    if (by !== READER_GONE) for (const text of notesOfEnding(ending)) note(text);
    return { ...reportOfEnding(ending, sandbox.id), exitCode: exitCode(ending, by) };
  } catch (reason) {
    const error = nameFlag(reason);
    const { received } = signals;
    if (error.code === "canceled" && received !== undefined) {
      return reportOfError(error, sandbox.id, 128 + signalNumber(received));
    }
    noteError(error);
    return reportOfError(error, sandbox.id);
  } finally {
    leaving.abort();
    signals.release();
  }
}

/** The server knows only that it was asked to end it; why, is known here. */
function exitCode(ending: CommandEnding, by: string | undefined): number {
  const { cause } = ending;
  return exitCodeOfEnding(
    cause.kind === "canceled" && by !== undefined ? { ...ending, cause: { ...cause, by } } : ending,
  );
}

async function join(
  { command, output }: StreamedCommand,
  plan: ExecPlan,
  pump: OutputPump,
  { signals, leaving }: { readonly signals: SignalForwarder; readonly leaving: AbortController },
): Promise<{ readonly ending: CommandEnding; readonly by: string | undefined }> {
  const terminal = new Terminal(process.stdin as ReadStream, process.stdout as WriteStream);
  let by: string | undefined;
  try {
    const forced = new Promise<CommandEnding>((resolve, reject) => {
      const end = (why: string): void => {
        by ??= why;
        endNow(command, pump).then(resolve, reject);
      };
      signals.aimAt({ signal: (signal, options) => command.signal(signal, options), end });
      void pump.broken.then(() => end(READER_GONE));
    });
    if (plan.tty) terminal.followSize((size) => command.resize(size));
    if (plan.tty && plan.interactive) terminal.setRaw();
    if (plan.interactive) feed(command, leaving.signal);
    const delivered = deliver(command, output, pump);
    // Only one of the two is waited for; the other may well fail when we leave.
    delivered.catch(() => {});
    forced.catch(() => {});
    const ending = await Promise.race([delivered, forced]);
    if (pump.isBroken) rejectLostOutput(await pump.broken);
    return { ending, by };
  } finally {
    process.stdin.destroy();
    terminal.restore();
  }
}

/** Gives a reader that still takes something the time it needs. */
async function endNow(command: Command, pump: OutputPump): Promise<CommandEnding> {
  const ending = await command.cancel({ graceMs: 0 });
  for (let before = -1; before !== pump.progress && !pump.isBroken; ) {
    before = pump.progress;
    await new Promise((resolve) => setTimeout(resolve, STALLED_MS).unref());
  }
  return ending;
}

/** Our stdin to the command's; its end is its end. A command that does not read all of it is no error. */
function feed(command: Command, signal: AbortSignal): void {
  const content = Readable.toWeb(process.stdin) as ReadableStream<Uint8Array>;
  command.stdin.write(content, { close: true, signal }).catch((reason: unknown) => {
    const { code } = HoldfastError.from(reason);
    if (code === "server_unreachable") note("the connection broke: what you type from now on does not arrive");
  });
}

async function deliver(command: Command, output: StreamedCommand["output"], pump: OutputPump): Promise<CommandEnding> {
  let ending: CommandEnding | undefined;
  await pump.run(
    outputEvents(output, (value) => {
      ending = value;
    }),
  );
  return ending ?? command.wait();
}

/** `holdfast logs`: what a command wrote, from the first byte that is kept. */
import { setTimeout as sleep } from "node:timers/promises";
import { type CommandInfo, HoldfastError, invalidArgument, printable } from "@holdfast/protocol";
import type { Command, Sandbox } from "@holdfast/sdk";
import { OutputPump } from "../run/output-pump.js";
import { notesOfEnding } from "../run/report.js";
import { coloursFor } from "../text/colours.js";
import { note } from "../text/notes.js";
import { formatTable } from "../text/table.js";
import { localTime } from "../text/times.js";
import type { ServerFlags } from "./find-server.js";
import { untilInterrupted } from "./interrupt.js";
import { outputEvents } from "./output-events.js";
import { ServerClient } from "./server-client.js";

export interface LogsFlags extends ServerFlags {
  readonly follow?: boolean;
  readonly list?: boolean;
  readonly json?: boolean;
}

/** What is kept comes at once; after so long without any, the rest has not been written yet. */
const QUIET_MS = 300;
/** A command that never falls silent: what was there when we asked has come long before this. */
const LONGEST_MS = 2000;
const MAX_COMMAND_LINE = 200;

function parseNumber(text: string): number {
  if (!/^[1-9]\d{0,14}$/.test(text)) throw invalidArgument("NUMBER", text, "the number of a command");
  return Number(text);
}

export async function logs(name: string, number: string | undefined, flags: LogsFlags): Promise<void> {
  const wanted = number === undefined ? undefined : parseNumber(number);
  const sandbox = await (await ServerClient.open(flags)).find(name);
  if (flags.list === true) return listCommands(sandbox, flags.json === true);
  const { status } = await sandbox.info();
  if (status === "ended") return showLastOutput(sandbox, wanted);
  const id = wanted ?? (await sandbox.commands())[0]?.id;
  if (id === undefined) {
    note("no command has run in it yet");
    return;
  }
  await showOutput(await sandbox.command(id), flags.follow === true);
}

async function listCommands(sandbox: Sandbox, json: boolean): Promise<void> {
  const commands = await sandbox.commands();
  if (json) process.stdout.write(`${JSON.stringify(commands)}\n`);
  else if (commands.length === 0) note("no command has run in it yet");
  else process.stdout.write(commandTable(commands));
}

function commandTable(commands: readonly CommandInfo[]): string {
  const { bold, green } = coloursFor(process.stdout);
  const rows = commands.map(({ id, pid, startedAt, ending, argv }) => [
    String(id),
    String(pid),
    localTime(startedAt),
    ending === null ? green("running") : ending.cause.kind,
    ending === null ? "" : String(ending.exitCode),
    printable(argv.join(" ")).slice(0, MAX_COMMAND_LINE),
  ]);
  return formatTable([["NUMBER", "PID", "STARTED", "STATE", "EXIT", "COMMAND"].map(bold), ...rows]);
}

async function showOutput(command: Command, follow: boolean): Promise<void> {
  const pump = new OutputPump(process);
  const interrupt = untilInterrupted();
  const leaving = new AbortController();
  interrupt.signal.addEventListener("abort", () => leaving.abort());
  // Whoever looks on must not slow the command down.
  const output = command.output({ stdout: 0, stderr: 0 }, { whenReaderIsSlow: "drop", signal: leaving.signal });
  try {
    const whole = pump.run(
      outputEvents(output, (ending) => {
        if (follow) for (const text of notesOfEnding(ending)) note(text);
      }),
    );
    if (follow) await whole;
    else await Promise.race([whole, quiet(pump, leaving)]);
  } catch (error) {
    if (!leaving.signal.aborted) throw HoldfastError.from(error);
  } finally {
    interrupt.release();
  }
  await pump.flush();
}

/** Leaves when nothing has come for a while, or when it has gone on for long enough. */
async function quiet(pump: OutputPump, leaving: AbortController): Promise<never> {
  const until = Date.now() + LONGEST_MS;
  for (let before = -1; before !== pump.progress && Date.now() < until; ) {
    before = pump.progress;
    await sleep(QUIET_MS, undefined, { signal: leaving.signal });
  }
  leaving.abort();
  throw new HoldfastError("canceled", "all that is there has been shown");
}

/** Of a sandbox that has ended, the last output is kept with how it ended. */
async function showLastOutput(sandbox: Sandbox, wanted: number | undefined): Promise<void> {
  const { commands } = await sandbox.postmortem();
  const newest = [...commands].sort((a, b) => b.id - a.id);
  const command = wanted === undefined ? newest[0] : newest.find(({ id }) => id === wanted);
  if (command === undefined) {
    const which = wanted === undefined ? "any command's output" : `the output of command ${wanted}`;
    throw new HoldfastError("command_not_found", `${sandbox.id} has ended, and ${which} was not kept`, {
      hint: `\`holdfast logs --list ${sandbox.id}\` shows its commands, \`holdfast postmortem\` how it ended.`,
    });
  }
  note(`the sandbox has ended; this is the last that command ${command.id} wrote`);
  const pump = new OutputPump(process);
  await pump.write("stdout", Buffer.from(command.stdoutTail, "base64"));
  await pump.write("stderr", Buffer.from(command.stderrTail, "base64"));
  await pump.flush();
}

/** How a sandbox ended, for a person: the cause, the numbers, the last output, the processes. */
import {
  ceilingBytesOf,
  formatBytes,
  formatDuration,
  type Postmortem,
  type ProcessRow,
  printable,
  type SandboxInfo,
} from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";
import { formatTable } from "../text/table.js";
import { localTime } from "../text/times.js";
import { eventLine } from "./event-line.js";

const MAX_OUTPUT_LINES = 20;
const MAX_COMMANDS = 5;
const MAX_PROCESSES = 25;
const MAX_EVENTS = 15;
const MAX_COMMAND_LINE = 60;

function orUnknown(value: number | null, format: (value: number) => string): string {
  return value === null ? "unknown" : format(value);
}

function indent(text: string): string {
  return text.replace(/^(?=.)/gm, "  ");
}

function section(title: string, body: string, colours: Colours): string {
  return body === "" ? "" : `\n${colours.bold(title)}\n${indent(body)}`;
}

function lifeText({ createdAt, endedAt }: SandboxInfo): string {
  if (endedAt === null) return `from ${localTime(createdAt)}`;
  const lived = formatDuration(Date.parse(endedAt) - Date.parse(createdAt));
  return `${lived}, from ${localTime(createdAt)} to ${localTime(endedAt)}`;
}

function summary({ sandbox, ending }: Postmortem): string {
  const { limits } = sandbox;
  const { usage } = ending;
  return formatTable([
    ["lived", lifeText(sandbox)],
    ["cause", ending.cause.kind],
    ["memory", `peak ${orUnknown(usage.memoryPeakBytes, formatBytes)} of ${formatBytes(ceilingBytesOf(limits))}`],
    ["processes", `peak ${orUnknown(usage.pidsPeak, String)} of ${limits.pids}`],
    ["CPU", `${formatDuration(usage.cpuMs)} of up to ${limits.cpuMillis / 1000} CPUs`],
    ["disk", `limit ${formatBytes(limits.diskBytes)}`],
    ["template", `${printable(sandbox.template)}, boot ${sandbox.boots}`],
    ...Object.entries(sandbox.metadata).map(([name, value]) => [printable(name), printable(value)]),
  ]);
}

/** The last lines, without what could move a terminal's cursor. */
export function lastLines(base64: string, most = MAX_OUTPUT_LINES): string {
  const lines = Buffer.from(base64, "base64").toString("utf8").replace(/\r\n?/g, "\n").split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines
    .slice(-most)
    .map((line) => `| ${printable(line)}`.trimEnd())
    .join("\n");
}

function commandText(command: Postmortem["commands"][number], colours: Colours): string {
  const line = printable(command.argv.join(" ")).slice(0, MAX_COMMAND_LINE * 2);
  const how = command.ending === null ? "was running" : printable(command.ending.message);
  const parts = [`${colours.bold(`#${command.id}`)} ${line}`, `   ${how}`];
  for (const [name, tail] of [
    ["stdout", command.stdoutTail],
    ["stderr", command.stderrTail],
  ] as const) {
    const lines = lastLines(tail);
    if (lines !== "") parts.push(`   last of ${name}:`, lines.replace(/^/gm, "   "));
  }
  return `${parts.join("\n")}\n`;
}

/** The newest last, because that is where one looks first on a terminal. */
function commandsText(commands: Postmortem["commands"], colours: Colours): string {
  const newest = [...commands].sort((a, b) => a.id - b.id);
  const left = newest.length - MAX_COMMANDS;
  const more = left > 0 ? `(${left} earlier ones are in --json)\n` : "";
  return (
    more +
    newest
      .slice(-MAX_COMMANDS)
      .map((command) => commandText(command, colours))
      .join("")
  );
}

function processesText(processes: readonly ProcessRow[], colours: Colours): string {
  if (processes.length === 0) return "";
  const shown = [...processes].sort((a, b) => b.rssBytes - a.rssBytes).slice(0, MAX_PROCESSES);
  const rows = shown.map((row) => [
    row.pid === null ? "-" : String(row.pid),
    printable(row.state),
    formatBytes(row.rssBytes),
    row.commandId === null ? "-" : `#${row.commandId}`,
    printable(row.commandLine === "" ? `[${row.name}]` : row.commandLine).slice(0, MAX_COMMAND_LINE),
  ]);
  const left = processes.length - shown.length;
  return (
    formatTable([["PID", "STATE", "MEMORY", "OF", "COMMAND"].map(colours.bold), ...rows]) +
    (left > 0 ? `and ${left} more\n` : "")
  );
}

function countersText(counters: Postmortem["counters"]): string {
  const known = Object.entries(counters).filter(([, value]) => value !== null);
  return known.length === 0 ? "" : formatTable(known.map(([name, value]) => [printable(name), String(value)]));
}

export function postmortemText(postmortem: Postmortem, colours: Colours): string {
  const { sandbox, ending, commands, processes, counters, events } = postmortem;
  const shownEvents = events.slice(-MAX_EVENTS).map((event) => eventLine(event, colours, { brief: true }));
  return [
    `${colours.bold(`Sandbox ${sandbox.id}`)}\n${colours.red(printable(ending.message))}\n`,
    section("Facts", summary(postmortem), colours),
    section("Commands", commandsText(commands, colours), colours),
    section("Processes when the end began", processesText(processes, colours), colours),
    section("Counters", countersText(counters), colours),
    section("Events", shownEvents.length === 0 ? "" : `${shownEvents.join("\n")}\n`, colours),
  ].join("");
}

/** The server's log for a person at a terminal: one short line each, of what pino writes as JSON. */
import { printable } from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";

const LEVELS: Readonly<Record<number, string>> = {
  10: "trace",
  20: "debug",
  30: "info",
  40: "warn",
  50: "error",
  60: "fatal",
};
/** The same on every line, or said in another way. */
const LEFT_OUT = new Set(["level", "time", "msg", "pid", "hostname", "name", "v"]);
const MAX_VALUE_CHARACTERS = 120;

export function formatLogLine(line: string, colours: Colours): string {
  let record: Record<string, unknown>;
  try {
    record = JSON.parse(line) as Record<string, unknown>;
  } catch {
    // Not ours; better shown as it is than not at all.
    return `${printable(line.trimEnd())}\n`;
  }
  const level = LEVELS[Number(record.level)] ?? "info";
  const facts = Object.entries(record)
    .filter(([name]) => !LEFT_OUT.has(name))
    .map(([name, value]) => `${name}=${formatValue(value)}`);
  const message = printable(String(record.msg ?? ""));
  const parts = [colours.dim(clockTime(record.time)), paintLevel(level, colours), message];
  if (facts.length > 0) parts.push(colours.dim(facts.join(" ")));
  return `${parts.filter((part) => part !== "").join(" ")}\n`;
}

/** Local, to the second: a person compares it with the clock on the wall. */
function clockTime(time: unknown): string {
  const date = new Date(typeof time === "number" || typeof time === "string" ? time : Number.NaN);
  return Number.isNaN(date.getTime()) ? "" : date.toTimeString().slice(0, 8);
}

function paintLevel(level: string, colours: Colours): string {
  const text = level.padEnd(5);
  if (level === "warn") return colours.yellow(text);
  return level === "error" || level === "fatal" ? colours.red(text) : text;
}

function formatValue(value: unknown): string {
  if (typeof value === "string") return shorten(/[\s"=]/.test(value) ? JSON.stringify(value) : value);
  // How pino writes an error; the stack is in the JSON log.
  const { message } = (value ?? {}) as { message?: unknown };
  return shorten(typeof message === "string" ? JSON.stringify(message) : (JSON.stringify(value) ?? ""));
}

function shorten(text: string): string {
  const shown = printable(text);
  return shown.length > MAX_VALUE_CHARACTERS ? `${shown.slice(0, MAX_VALUE_CHARACTERS)}…` : shown;
}

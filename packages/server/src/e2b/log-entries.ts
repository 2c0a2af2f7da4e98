/** A sandbox's logs: what happened to it and to its commands, from the event log, as E2B shows logs. */
import { HoldfastError } from "@holdfast/protocol";
import type { Caller, Sandboxes } from "../sandboxes/types.js";
import type { EventRow } from "../store/store.js";

export const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export interface LogEntry {
  readonly timestamp: string;
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: Readonly<Record<string, string>>;
}

export interface LogQuery {
  /** Milliseconds since 1970, inclusive: the first time going forward, the last one going backward. */
  readonly cursorMs?: number | undefined;
  readonly direction: "forward" | "backward";
  readonly limit: number;
  readonly minimumLevel: LogLevel;
  readonly search?: string | undefined;
}

const PAGE = 500;

/** Network settings hold a proxy's password and headers with credentials. */
const NOT_SHOWN: ReadonlySet<string> = new Set(["network"]);

const ORDINARY_ENDS: ReadonlySet<unknown> = new Set(["killed", "timed_out"]);
const OUR_ENDS: ReadonlySet<unknown> = new Set(["out_of_memory", "out_of_pids", "out_of_disk", "lost"]);

function causeKind(data: EventRow["data"]): unknown {
  const { cause } = data;
  return typeof cause === "object" && cause !== null && "kind" in cause ? cause.kind : undefined;
}

function levelOf(event: EventRow): LogLevel {
  const cause = causeKind(event.data);
  if (event.kind === "ended") return ORDINARY_ENDS.has(cause) ? "info" : "error";
  if (event.kind !== "command_ended") return "info";
  if (OUR_ENDS.has(cause)) return "error";
  const { incidents } = event.data;
  return cause === "timed_out" || (Array.isArray(incidents) && incidents.length > 0) ? "warn" : "info";
}

export function logEntry(event: EventRow): LogEntry {
  const data = Object.entries(event.data)
    .filter(([name, value]) => !NOT_SHOWN.has(name) && value !== undefined)
    .map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  return {
    timestamp: event.at.toISOString(),
    level: levelOf(event),
    message: event.message,
    fields: { ...Object.fromEntries(data), event: event.kind, logger: "holdfast" },
  };
}

/** The line that E2B's command line tool takes apart again. */
export function logLine(entry: LogEntry): { readonly timestamp: string; readonly line: string } {
  return {
    timestamp: entry.timestamp,
    line: JSON.stringify({ ...entry.fields, level: entry.level, message: entry.message }),
  };
}

async function* eventsInOrder(sandboxes: Sandboxes, caller: Caller, sandboxId: string): AsyncGenerator<EventRow> {
  let after: number | undefined;
  for (;;) {
    const page = await sandboxes.events(caller, { sandboxId, after, limit: PAGE });
    yield* page;
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return;
    if (after !== undefined && last.seq <= after) throw new HoldfastError("engine_fault", "the event log stands still");
    after = last.seq;
  }
}

/** Holds no more than `limit` entries at a time, however long the log is. */
export async function readLogEntries(
  sandboxes: Sandboxes,
  caller: Caller,
  sandboxId: string,
  query: LogQuery,
): Promise<LogEntry[]> {
  const minimum = LOG_LEVELS.indexOf(query.minimumLevel);
  const isForward = query.direction === "forward";
  let entries: LogEntry[] = [];
  if (query.limit === 0) return entries;
  for await (const event of eventsInOrder(sandboxes, caller, sandboxId)) {
    const at = event.at.getTime();
    if (query.cursorMs !== undefined && isForward && at < query.cursorMs) continue;
    if (query.cursorMs !== undefined && !isForward && at > query.cursorMs) break;
    const entry = logEntry(event);
    if (LOG_LEVELS.indexOf(entry.level) < minimum) continue;
    if (query.search !== undefined && !entry.message.includes(query.search)) continue;
    entries.push(entry);
    if (isForward && entries.length === query.limit) break;
    if (entries.length >= 2 * query.limit) entries = entries.slice(-query.limit);
  }
  return isForward ? entries : entries.slice(-query.limit).reverse();
}

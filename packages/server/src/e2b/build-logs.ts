/** A build's log as E2B shows it: by pages, with the steps numbered as they were asked for. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Build, BuildLogEntry } from "@holdfast/images";
import { LOG_LEVELS, type LogLevel } from "./log-entries.js";

/** So long a build that goes on may say nothing before the page is sent as it is. */
const QUIET_MS = 25;
/** All of it is there when a build has ended; this is for a disk that hangs. */
const PATIENCE_MS = 5000;

export interface TemplateLogEntry {
  readonly timestamp: string;
  readonly level: LogLevel;
  readonly message: string;
  readonly step: string;
}

/** Ours are counted from the first step of the recipe; those before the ones asked for belong to the base. */
export function shownStep(step: string, leadingSteps: number): string {
  const number = /^\d+$/.test(step) ? Number(step) : undefined;
  if (number === undefined) return step;
  return number <= leadingSteps ? "base" : String(number - leadingSteps);
}

/** Messages begin with the number of their step. */
export function shownMessage(message: string, step: string, leadingSteps: number): string {
  const prefix = `step ${step} `;
  return message.startsWith(prefix) ? `step ${shownStep(step, leadingSteps)} ${message.slice(prefix.length)}` : message;
}

export interface ShownBuild {
  readonly leadingSteps: number;
  /** Why it failed, if it did: that line is an error. */
  readonly failureMessage: string | undefined;
}

export function shownEntry(entry: BuildLogEntry, build: ShownBuild): TemplateLogEntry {
  const isFailure = entry.stream === "info" && entry.text === build.failureMessage;
  return {
    timestamp: entry.at,
    level: isFailure ? "error" : entry.stream === "stderr" ? "warn" : "info",
    message: entry.stream === "info" ? shownMessage(entry.text, entry.step, build.leadingSteps) : entry.text,
    step: shownStep(entry.step, build.leadingSteps),
  };
}

/** What is there by now, from the entry of this number on. */
export async function* availableLog(
  build: Build,
  options: { readonly from: number; readonly ended: boolean },
): AsyncGenerator<BuildLogEntry> {
  const stop = new AbortController();
  const log = build.log({ from: options.from, signal: stop.signal })[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = log.next();
      const waiting = new AbortController();
      const quiet = sleep(options.ended ? PATIENCE_MS : QUIET_MS, undefined, { signal: waiting.signal }).then(
        () => stop.abort(),
        () => undefined,
      );
      // After the signal the log ends by itself, with what it has read until then.
      const result = await next;
      waiting.abort();
      await quiet;
      if (result.done === true) return;
      yield result.value;
    }
  } finally {
    stop.abort();
    await log.return?.();
  }
}

export interface StatusPage {
  readonly offset: number;
  readonly limit: number;
  readonly minimumLevel: LogLevel;
  readonly ended: boolean;
}

/** The entries after the first `offset` of those that are important enough. */
export async function readStatusPage(build: Build, shown: ShownBuild, page: StatusPage): Promise<TemplateLogEntry[]> {
  const takesAll = LOG_LEVELS.indexOf(page.minimumLevel) <= LOG_LEVELS.indexOf("info");
  const entries: TemplateLogEntry[] = [];
  let skip = takesAll ? 0 : page.offset;
  for await (const entry of availableLog(build, { from: takesAll ? page.offset : 0, ended: page.ended })) {
    const one = shownEntry(entry, shown);
    if (!isImportant(one, page.minimumLevel)) continue;
    if (skip > 0) skip -= 1;
    else if (entries.push(one) === page.limit) break;
  }
  return entries;
}

export interface LogRange {
  /** Milliseconds since 1970, inclusive: the first time going forward, the last one going backward. */
  readonly cursorMs: number | undefined;
  readonly direction: "forward" | "backward";
  readonly limit: number;
  readonly minimumLevel: LogLevel;
  readonly ended: boolean;
}

export async function readLogRange(build: Build, shown: ShownBuild, range: LogRange): Promise<TemplateLogEntry[]> {
  const { cursorMs, direction, limit } = range;
  const entries: TemplateLogEntry[] = [];
  for await (const entry of availableLog(build, { from: 0, ended: range.ended })) {
    const one = shownEntry(entry, shown);
    if (!isImportant(one, range.minimumLevel)) continue;
    const atMs = Date.parse(entry.at);
    if (direction === "backward") {
      if (cursorMs !== undefined && atMs > cursorMs) break;
      entries.push(one);
      if (entries.length > limit) entries.shift();
    } else if (cursorMs === undefined || atMs >= cursorMs) {
      if (entries.push(one) === limit) break;
    }
  }
  return direction === "backward" ? entries.reverse() : entries;
}

function isImportant(entry: TemplateLogEntry, minimum: LogLevel): boolean {
  return LOG_LEVELS.indexOf(entry.level) >= LOG_LEVELS.indexOf(minimum);
}

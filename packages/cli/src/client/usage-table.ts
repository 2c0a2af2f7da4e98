/** The table of `holdfast top`: at most 80 columns, the busiest first. */
import { ceilingBytesOf, type SandboxInfo, type SandboxUsage } from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";
import { shortSize } from "../text/sizes.js";
import { formatTable, visibleWidth } from "../text/table.js";
import { shortDuration } from "../text/times.js";
import { paintStatus } from "./sandbox-table.js";

export interface UsageRow {
  readonly sandbox: SandboxInfo;
  /** Null if it could not be looked at: it is paused, or went while we looked. */
  readonly usage: SandboxUsage | null;
}

const HEAD = ["ID", "STATE", "CPU", "MEMORY", "PIDS", "STAGE", "LEFT"];
const LEFT_ALIGNED = ["ID", "STATE", "STAGE", "LEFT"];
const FULL = 0.9;

function percent(millis: number | null): string {
  return millis === null ? "-" : `${(millis / 10).toFixed(millis < 100 ? 1 : 0)}%`;
}

/** "12M/512M", in colour when there is little left. */
function share(used: number | null, limit: number, format: (value: number) => string, colours: Colours): string {
  if (used === null) return `-/${format(limit)}`;
  const text = `${format(used)}/${format(limit)}`;
  return limit > 0 && used / limit >= FULL ? colours.red(text) : text;
}

/** "100M/128M..512M": used, of the limit, which may grow to the last. Red when that is almost used up. */
function memory(usage: SandboxUsage, colours: Colours): string {
  const { memoryBytes, memoryLimitBytes, memoryCeilingBytes } = usage;
  const text = `${shortSize(memoryBytes)}/${shortSize(memoryLimitBytes)}`;
  const whole = memoryCeilingBytes > memoryLimitBytes ? `${text}..${shortSize(memoryCeilingBytes)}` : text;
  return memoryBytes / memoryCeilingBytes >= FULL ? colours.red(whole) : whole;
}

/** The worse of how short it is of memory and of processes. */
function stage({ pressure }: SandboxInfo, colours: Colours): string {
  if (pressure === null) return "-";
  if (pressure.frozen) return colours.yellow("frozen");
  if (pressure.memory !== "calm") return colours.red(pressure.memory);
  return pressure.processes === "calm" ? "calm" : colours.red(`p:${pressure.processes}`);
}

function cells({ sandbox, usage }: UsageRow, now: number, colours: Colours): string[] {
  const left =
    sandbox.expiresAt === null || sandbox.status === "paused"
      ? "-"
      : shortDuration(Date.parse(sandbox.expiresAt) - now);
  const status = paintStatus(sandbox.status, colours);
  if (usage === null)
    return [sandbox.id, status, "-", `-/${shortSize(ceilingBytesOf(sandbox.limits))}`, "-", "-", left];
  return [
    sandbox.id,
    status,
    percent(usage.cpuMillis),
    memory(usage, colours),
    share(usage.pids, usage.pidsLimit, String, colours),
    stage(sandbox, colours),
    left,
  ];
}

/** Numbers are easier to compare when their ends line up. */
function alignRight(rows: readonly (readonly string[])[]): string[][] {
  const widths = HEAD.map((_, column) => Math.max(0, ...rows.map((row) => visibleWidth(row[column] ?? ""))));
  return rows.map((row) =>
    row.map((cell, column) =>
      LEFT_ALIGNED.includes(HEAD[column] ?? "")
        ? cell
        : " ".repeat(Math.max(0, (widths[column] ?? 0) - visibleWidth(cell))) + cell,
    ),
  );
}

export function sortByLoad(rows: readonly UsageRow[]): UsageRow[] {
  const weight = ({ usage }: UsageRow): number => usage?.cpuMillis ?? -1;
  const memory = ({ usage }: UsageRow): number => usage?.memoryBytes ?? -1;
  return [...rows].sort(
    (a, b) => weight(b) - weight(a) || memory(b) - memory(a) || (a.sandbox.id < b.sandbox.id ? -1 : 1),
  );
}

export function usageTable(rows: readonly UsageRow[], now: number, colours: Colours): string {
  const body = sortByLoad(rows).map((row) => cells(row, now, colours));
  return formatTable(alignRight([HEAD.map(colours.bold), ...body]));
}

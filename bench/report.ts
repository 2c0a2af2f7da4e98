/** The table for people and the JSON for machines. */
import type { Figure, Ratio, Row, Unit } from "./harness.js";
import type { HostFacts } from "./host-facts.js";

export interface FigureResult {
  readonly figure: Pick<Figure, "name" | "title">;
  readonly rows: readonly Row[];
  readonly seconds: number;
  /** Why there are no rows. */
  readonly failure?: string;
}

export interface Report {
  readonly date: string;
  readonly quick: boolean;
  readonly host: HostFacts;
  readonly loadBefore: readonly number[];
  readonly loadAfter: readonly number[];
  readonly seconds: number;
  readonly figures: readonly FigureResult[];
}

const HEADINGS = ["", "median", "p95", "beside", "median", "p95", "ratio (by round)", "goal"];
/** Text to the left, numbers to the right. */
const RIGHT = new Set([1, 2, 4, 5]);

export function formatValue(value: number, unit: Unit): string {
  switch (unit) {
    case "ms":
      if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
      return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ms`;
    case "bytes":
      return Math.abs(value) < 1024 * 1024
        ? `${(value / 1024).toFixed(0)} KiB`
        : `${(value / 1024 / 1024).toFixed(2)} MiB`;
    case "MB/s":
      return `${value.toFixed(0)} MB/s`;
  }
}

function formatRatio(ratio: Ratio): string {
  const digits = (value: number) => value.toFixed(value < 10 ? 2 : 0);
  return `${digits(ratio.median)}x (${digits(ratio.min)}–${digits(ratio.max)})`;
}

function formatGoal(goal: NonNullable<Row["goal"]>, unit: Unit): string {
  const limit = "atMost" in goal ? goal.atMost : goal.atLeast;
  const sign = "atMost" in goal ? "≤" : "≥";
  const amount = goal.kind === "ratio" ? `${limit}x` : formatValue(limit, unit);
  // The other two can be read in the row; a difference cannot.
  const reached = goal.kind === "difference" ? `adds ${formatValue(goal.reached, unit)}, ` : "";
  const text = `${reached}${sign} ${amount}`;
  return `${text} ${goal.met ? "met" : "MISSED"}`;
}

/** Several peers of one thing are several rows; what is ours is shown in the first of them. */
function cellsOf(row: Row, isContinued: boolean): string[] {
  const { ours, unit, peer, ratio, goal } = row;
  const once = ours.count === 1;
  return [
    isContinued ? "" : `  ${row.what}`,
    isContinued ? "" : formatValue(ours.median, unit),
    isContinued || once ? "" : formatValue(ours.p95, unit),
    peer?.name ?? "",
    peer?.summary === undefined ? "" : formatValue(peer.summary.median, unit),
    peer?.summary === undefined || peer.summary.count === 1 ? "" : formatValue(peer.summary.p95, unit),
    ratio === undefined ? (peer?.absent ?? "") : formatRatio(ratio),
    goal === undefined ? "" : formatGoal(goal, unit),
  ];
}

function linesOf({ figure, rows, failure }: FigureResult): (string[] | string)[] {
  const lines: (string[] | string)[] = ["", figure.title];
  if (failure !== undefined) lines.push(`  not measured: ${failure}`);
  rows.forEach((row, index) => {
    lines.push(cellsOf(row, index > 0 && rows[index - 1]?.what === row.what));
    if (row.note !== undefined) lines.push(`      ${row.note}`);
  });
  return lines;
}

export function formatReport(report: Report): string {
  const lines = [HEADINGS, ...report.figures.flatMap(linesOf)];
  const tabular = lines.filter((line) => typeof line !== "string");
  const widths = HEADINGS.map((_, column) => Math.max(...tabular.map((cells) => cells[column]?.length ?? 0)));
  const pad = (cell: string, column: number) =>
    RIGHT.has(column) ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0);
  const body = lines.map((line) => (typeof line === "string" ? line : line.map(pad).join("  ").trimEnd()));
  return [...body, "", ...formatFacts(report), ""].join("\n");
}

function formatFacts(report: Report): string[] {
  const { host } = report;
  const load = (values: readonly number[]) => values.map((value) => value.toFixed(2)).join(" ");
  return [
    `${host.cpuCount} × ${host.cpu}, ${Math.round(host.memoryBytes / 1024 ** 3)} GiB, Linux ${host.kernel}, cgroups ${host.cgroups}`,
    `Node ${host.node}, ${host.bubblewrap}; ${report.quick ? "quick (few turns, for a smoke test)" : "full"}, ${report.seconds.toFixed(0)} s`,
    `load average ${load(report.loadBefore)} before, ${load(report.loadAfter)} after`,
    "p95: one of twenty took longer; a ratio is of medians, in brackets the least and the greatest of the rounds'.",
  ];
}

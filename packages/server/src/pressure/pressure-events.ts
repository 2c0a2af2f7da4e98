/** What is told of pressure: to whoever watches a sandbox, to programs inside, to the operator. */
import { type CleanUpReport, type Crossing, type MemoryReading, stallPercent } from "@holdfast/engine";
import { formatBytes, type PressureStage, type ProcessStage } from "@holdfast/protocol";
import type { NewEvent } from "../store/store.js";
import { usedPercent } from "./settings.js";

const percent = (value: number): string => `${Math.round(value * 10) / 10} %`;

export interface ProcessFigures {
  readonly used: number;
  readonly limit: number;
}

export function describeMemory(reading: MemoryReading, source: "psi" | "usage"): string {
  if (source === "usage") return `${percent(usedPercent(reading))} of ${formatBytes(reading.limitBytes)} are in use`;
  return `${percent(reading.stall === undefined ? 0 : stallPercent(reading.stall))} of the time is lost to waiting for memory`;
}

export const describeProcesses = ({ used, limit }: ProcessFigures): string =>
  `${used} of ${limit} processes are in use (${percent((used / Math.max(1, limit)) * 100)})`;

function crossed<Name extends string>({ from, to, direction, passed }: Crossing<Name>): string {
  if (direction === "down") return `came back from ${from} to ${to}`;
  return passed.length > 1 ? `went from ${from} to ${to} at once` : `went from ${from} to ${to}`;
}

const dataOf = <Name extends string>({ from, to, direction, passed, value }: Crossing<Name>) => ({
  from,
  to,
  direction,
  passed,
  percent: Math.round(value * 10) / 10,
});

export const pressureEvents = {
  memory: (who: string, crossing: Crossing<PressureStage>, reading: MemoryReading, source: "psi" | "usage") => ({
    kind: "pressure" as const,
    message: `${who}: memory ${crossed(crossing)}; ${describeMemory(reading, source)}.`,
    data: { ...dataOf(crossing), source },
  }),

  processes: (who: string, crossing: Crossing<ProcessStage>, figures: ProcessFigures) => ({
    kind: "pid_pressure" as const,
    message: `${who}: processes ${crossed(crossing)}; ${describeProcesses(figures)}.`,
    data: { ...dataOf(crossing), used: figures.used, limit: figures.limit },
  }),

  cleanedUp: (who: string, { zombiesReaped, orphansEnded, failed }: CleanUpReport) => ({
    kind: "cleaned_up" as const,
    message: `${who}: ${zombiesReaped + orphansEnded} processes were freed: ${orphansEnded} that outlived their command were ended, ${zombiesReaped} dead ones were waited for${failed === 0 ? "" : `; ${failed} could not be ended`}.`,
    data: { freed: zombiesReaped + orphansEnded, zombiesReaped, orphansEnded, failed },
  }),

  frozen: (why: string): NewEvent => ({
    kind: "frozen",
    message: `Frozen because the host is short of memory, and ${why}. Any use of it ends that.`,
    data: { why },
  }),

  thawed: (why: string): NewEvent => ({ kind: "thawed", message: `Goes on: ${why}.`, data: { why } }),
} as const;

/** The settings about pressure: when the host or a sandbox is short, and what is done then. */
import { PRESSURE_STAGES, PROCESS_STAGES } from "@holdfast/protocol";
import { z } from "zod";

export const PRESSURE_SOURCES = ["auto", "psi", "usage"] as const;

/** Percentages, one for each stage but the calm, each greater than the one before. */
function thresholds(stages: readonly string[], values: readonly number[]) {
  const names = stages.slice(1);
  const error = `${names.length} percentages from 0.1 to 100, each greater than the one before (${names.join(", ")}), such as ${JSON.stringify(values)}`;
  return z
    .array(z.number({ error }).min(0.1, { error }).max(100, { error }), { error })
    .refine(
      (list) => list.length === names.length && list.every((value, i) => i === 0 || value > Number(list[i - 1])),
      {
        error,
      },
    )
    .default([...values]);
}

function seconds(min: number, max: number, value: number) {
  const error = `a number of seconds from ${min} to ${max}`;
  return z.number({ error }).min(min, { error }).max(max, { error }).default(value);
}

const commandsError = "a whole number of commands from 1 to 1000";

export const pressureFields = {
  pressureSource: z
    .enum(PRESSURE_SOURCES, { error: `one of ${PRESSURE_SOURCES.join(", ")}` })
    .default("auto")
    .describe("What pressure on memory is told from: psi (the kernel's), usage, or auto: psi where there is such"),
  pressureStall: thresholds(PRESSURE_STAGES, [20, 40, 60, 75, 90]).describe(
    "With psi: the percent of time lost to waiting for memory at which the host and sandboxes enter each stage",
  ),
  hostPressureUsage: thresholds(PRESSURE_STAGES, [80, 85, 90, 95, 98]).describe(
    "With usage: the percent of its memory in use at which the host enters each stage",
  ),
  sandboxPressureUsage: thresholds(PRESSURE_STAGES, [75, 85, 92, 97, 99]).describe(
    "With usage: the percent of its limit in use at which a sandbox enters each stage",
  ),
  processThresholds: thresholds(PROCESS_STAGES, [60, 80, 90]).describe(
    "The percent of its processes in use at which the host or a sandbox warns, is cleaned up, and starts nothing new",
  ),
  pressureHoldSeconds: seconds(0, 3600, 10).describe("How long it must have been better before a stage is left"),
  pressureEverySeconds: seconds(0.05, 60, 5).describe(
    "How often each sandbox is looked at for pressure; the host is looked at five times as often",
  ),
  sweepEverySeconds: seconds(1, 86_400, 60).describe(
    "How often processes of ours that belong to nobody are looked for and ended",
  ),
  freezeIdleSeconds: seconds(0.1, 86_400, 60).describe(
    "How long a sandbox must have been idle to be frozen when the host is short of memory",
  ),
  throttledCommands: z
    .int({ error: commandsError })
    .min(1, { error: commandsError })
    .max(1000, { error: commandsError })
    .default(2)
    .describe("How many commands may be started at once in a sandbox that is throttled; others wait"),
  throttleWaitSeconds: seconds(0, 600, 10).describe("How long those wait before they are refused"),
};

/** The settings about pressure, as those who act upon them need them. */
import { type MemoryReading, type ReadOptions, type StageRule, Stages, stallPercent } from "@holdfast/engine";
import { PRESSURE_STAGES, PROCESS_STAGES, type PressureStage, type ProcessStage } from "@holdfast/protocol";
import type { ServerConfig } from "../config/schema.js";

/** In and out are so many percent apart, or a quarter of a small threshold. */
const DISTANCE = 5;
const SMALLEST_SHARE = 4;
/** The host is one, and everything depends on it. */
const HOST_LOOKS = 5;

export interface PressureSettings {
  readonly holdMs: number;
  readonly hostEveryMs: number;
  /** Each sandbox has its look within so many of the host's. */
  readonly sandboxTurns: number;
  readonly sweepEveryMs: number;
  readonly idleMs: number;
  readonly throttledCommands: number;
  readonly throttleWaitMs: number;
  /** Below this, a sandbox that was full of processes is so no more, although its stage is left later. */
  readonly refuseProcessesPercent: number;
  /** What is to be read of a sandbox. */
  readonly readOptions: ReadOptions;
  sourceOf(reading: MemoryReading): "psi" | "usage";
  memoryStages(scope: "host" | "sandbox", source: "psi" | "usage"): Stages<PressureStage>;
  processStages(): Stages<ProcessStage>;
}

function rulesOf<Name extends string>(names: readonly Name[], thresholds: readonly number[]): StageRule<Name>[] {
  return names.slice(1).map((name, index) => {
    const enter = thresholds[index] ?? Number.POSITIVE_INFINITY;
    return { name, enter, leave: enter - Math.min(DISTANCE, enter / SMALLEST_SHARE) };
  });
}

export function pressureSettings(config: ServerConfig): PressureSettings {
  const holdMs = config.pressureHoldSeconds * 1000;
  const usage = { host: config.hostPressureUsage, sandbox: config.sandboxPressureUsage };
  return {
    holdMs,
    hostEveryMs: (config.pressureEverySeconds * 1000) / HOST_LOOKS,
    sandboxTurns: HOST_LOOKS,
    sweepEveryMs: config.sweepEverySeconds * 1000,
    idleMs: config.freezeIdleSeconds * 1000,
    throttledCommands: config.throttledCommands,
    refuseProcessesPercent: rulesOf(PROCESS_STAGES, config.processThresholds).at(-1)?.leave ?? 100,
    throttleWaitMs: config.throttleWaitSeconds * 1000,
    readOptions: {
      usage: config.pressureSource === "usage",
      // Whoever holds less than this with its page cache is calm without it, too.
      exactFromPercent: rulesOf(PRESSURE_STAGES, usage.sandbox)[0]?.leave,
    },
    sourceOf: ({ stall }) =>
      config.pressureSource === "auto" ? (stall === undefined ? "usage" : "psi") : config.pressureSource,
    memoryStages: (scope, source) =>
      new Stages<PressureStage>({
        calm: "calm",
        rules: rulesOf(PRESSURE_STAGES, source === "psi" ? config.pressureStall : usage[scope]),
        holdMs,
      }),
    processStages: () =>
      new Stages<ProcessStage>({ calm: "calm", rules: rulesOf(PROCESS_STAGES, config.processThresholds), holdMs }),
  };
}

export function usedPercent({ usedBytes, limitBytes }: MemoryReading): number {
  return limitBytes === 0 ? 0 : (usedBytes / limitBytes) * 100;
}

/** What the stages are told from. Where psi is asked for and there is none, nothing is known, and nothing is done. */
export function memoryPercent(reading: MemoryReading, source: "psi" | "usage"): number {
  if (source === "usage") return usedPercent(reading);
  return reading.stall === undefined ? 0 : stallPercent(reading.stall);
}

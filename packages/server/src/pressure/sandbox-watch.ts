/** What is known of one sandbox between two looks. */
import type { Crossing, MemoryReading, ProcessCounts, SandboxGauge, Stages } from "@holdfast/engine";
import { CALM_TEXT } from "@holdfast/engine";
import { PRESSURE_STAGES, type PressureStage, type ProcessStage } from "@holdfast/protocol";
import { CommandTurns } from "./command-turns.js";
import { describeMemory, describeProcesses, type ProcessFigures } from "./pressure-events.js";
import { memoryPercent, type PressureSettings } from "./settings.js";

/** The dead and the orphaned are counted this seldom, unless processes are short: it costs more than all else. */
const COUNT_EVERY = 6;
/** From this stage on programs inside are told. */
const TOLD_FROM = PRESSURE_STAGES.indexOf("warn");

export interface Noticed {
  readonly memory: { readonly crossing: Crossing<PressureStage>; readonly reading: MemoryReading } | undefined;
  readonly processes: { readonly crossing: Crossing<ProcessStage>; readonly figures: ProcessFigures } | undefined;
}

export class SandboxWatch {
  readonly turns: CommandTurns;
  readonly processes: Stages<ProcessStage>;
  readonly #settings: PressureSettings;
  #memory: { readonly source: "psi" | "usage"; readonly stages: Stages<PressureStage> } | undefined;
  #looks = 0;
  #counts: ProcessCounts = { live: 0, zombies: 0, orphans: 0 };
  #figures: ProcessFigures = { used: 0, limit: 0 };
  #percent = 0;
  #memoryLine = "";
  #processLine = "";
  /** When somebody last asked for something in it. */
  usedAtMs: number;
  /** When it was last seen doing something. */
  busyAtMs: number;
  cleanedUpAtMs = Number.NEGATIVE_INFINITY;
  /** It stands still because of the host. */
  isFrozen = false;

  constructor(settings: PressureSettings, nowMs: number) {
    this.#settings = settings;
    this.turns = new CommandTurns({ most: settings.throttledCommands });
    this.processes = settings.processStages();
    this.usedAtMs = nowMs;
    this.busyAtMs = nowMs;
  }

  get counts(): ProcessCounts {
    return this.#counts;
  }

  get figures(): ProcessFigures {
    return this.#figures;
  }

  /** It has come to where nothing new is begun, and has not got away from there. */
  get isFullOfProcesses(): boolean {
    const { used, limit } = this.#figures;
    const percent = (used / Math.max(1, limit)) * 100;
    return this.processes.isAtLeast("refuse") && percent >= this.#settings.refuseProcessesPercent;
  }

  get memoryPercent(): number {
    return this.#percent;
  }

  get memoryStage(): PressureStage {
    return this.#memory?.stages.stage ?? "calm";
  }

  get source(): "psi" | "usage" {
    return this.#memory?.source ?? "usage";
  }

  isMemoryAtLeast(stage: PressureStage): boolean {
    return this.#memory?.stages.isAtLeast(stage) ?? false;
  }

  look(gauge: SandboxGauge, nowMs: number): Noticed {
    const { memory, processes: figures } = gauge.read(this.#settings.readOptions);
    const source = this.#settings.sourceOf(memory);
    this.#memory ??= { source, stages: this.#settings.memoryStages("sandbox", source) };
    this.#percent = memoryPercent(memory, this.source);
    this.#figures = figures;
    if (gauge.isBusy) this.busyAtMs = nowMs;
    const crossing = this.#memory.stages.observe(this.#percent, nowMs);
    const percent = (figures.used / Math.max(1, figures.limit)) * 100;
    const crossed = this.processes.observe(percent, nowMs);
    if (this.#looks++ % COUNT_EVERY === 0 || this.processes.stage !== "calm") this.#counts = gauge.countProcesses();
    if (crossing !== undefined) this.#memoryLine = this.#lineFor(this.memoryStage, describeMemory(memory, source));
    if (crossed !== undefined) {
      const { stage } = this.processes;
      this.#processLine = stage === "calm" ? "" : `${stage} processes: ${describeProcesses(figures)}\n`;
    }
    return {
      memory: crossing === undefined ? undefined : { crossing, reading: memory },
      processes: crossed === undefined ? undefined : { crossing: crossed, figures },
    };
  }

  /** What programs inside read: a line for each thing that is short, the stage first. */
  textFor(host: PressureStage): string {
    const lines = `${this.#memoryLine}${this.#processLine}${this.#lineFor(host, "the host is short of memory", "host")}`;
    return lines === "" ? CALM_TEXT : lines;
  }

  #lineFor(stage: PressureStage, text: string, what = "memory"): string {
    return PRESSURE_STAGES.indexOf(stage) < TOLD_FROM ? "" : `${stage} ${what}: ${text}\n`;
  }
}

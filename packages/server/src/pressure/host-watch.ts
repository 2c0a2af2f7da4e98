/** What is known of the host between two looks, and what has happened to it. */
import type { Engine, PressureReading, Stages } from "@holdfast/engine";
import type { HostEvent, HostPressure, PressureStage, ProcessStage } from "@holdfast/protocol";
import type { Logger } from "pino";
import { pressureEvents } from "./pressure-events.js";
import { memoryPercent, type PressureSettings, usedPercent } from "./settings.js";

const MOST_EVENTS = 50;

export interface HostNoticed {
  readonly memory: ReturnType<Stages<PressureStage>["observe"]>;
  readonly processes: ReturnType<Stages<ProcessStage>["observe"]>;
}

export class HostWatch {
  readonly #engine: Pick<Engine, "pressure">;
  readonly #settings: PressureSettings;
  readonly #log: Logger;
  readonly #processes: Stages<ProcessStage>;
  readonly #events: HostEvent[] = [];
  #memory: { readonly source: "psi" | "usage"; readonly stages: Stages<PressureStage> } | undefined;
  #reading: PressureReading | undefined;

  constructor(parts: {
    readonly engine: Pick<Engine, "pressure">;
    readonly settings: PressureSettings;
    readonly log: Logger;
  }) {
    this.#engine = parts.engine;
    this.#settings = parts.settings;
    this.#log = parts.log;
    this.#processes = parts.settings.processStages();
  }

  get memoryStage(): PressureStage {
    return this.#memory?.stages.stage ?? "calm";
  }

  get processStage(): ProcessStage {
    return this.#processes.stage;
  }

  isMemoryAtLeast(stage: PressureStage): boolean {
    return this.#memory?.stages.isAtLeast(stage) ?? false;
  }

  isProcessesAtLeast(stage: ProcessStage): boolean {
    return this.#processes.isAtLeast(stage);
  }

  get processFigures(): PressureReading["processes"] {
    return this.#reading?.processes ?? { used: 0, limit: 0 };
  }

  get memoryPercent(): number {
    return this.#reading === undefined ? 0 : memoryPercent(this.#reading.memory, this.#source);
  }

  get #source(): "psi" | "usage" {
    return this.#memory?.source ?? "usage";
  }

  look(nowMs: number): HostNoticed {
    const reading = this.#engine.pressure();
    this.#reading = reading;
    const source = this.#settings.sourceOf(reading.memory);
    this.#memory ??= { source, stages: this.#settings.memoryStages("host", source) };
    const memory = this.#memory.stages.observe(this.memoryPercent, nowMs);
    const { used, limit } = reading.processes;
    const processes = this.#processes.observe((used / Math.max(1, limit)) * 100, nowMs);
    if (memory !== undefined) this.tell(pressureEvents.memory("The host", memory, reading.memory, this.#source));
    if (processes !== undefined) this.tell(pressureEvents.processes("The host", processes, reading.processes));
    return { memory, processes };
  }

  tell(event: Omit<HostEvent, "at">): void {
    this.#events.push({ ...event, at: new Date().toISOString() });
    if (this.#events.length > MOST_EVENTS) this.#events.shift();
    this.#log.warn({ kind: event.kind, ...event.data }, event.message);
  }

  view(): Pick<HostPressure, "memory" | "events"> & {
    readonly processes: Pick<HostPressure["processes"], "stage" | "used" | "limit">;
  } {
    // Asked for before the first look.
    const { memory, processes } = this.#reading ?? this.#engine.pressure();
    return {
      memory: {
        stage: this.memoryStage,
        from: this.#memory?.source ?? this.#settings.sourceOf(memory),
        stall: memory.stall ?? null,
        usedPercent: Math.round(usedPercent(memory) * 10) / 10,
      },
      processes: { stage: this.processStage, ...processes },
      events: [...this.#events],
    };
  }
}

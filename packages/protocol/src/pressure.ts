/** How short a sandbox or the host is of memory and of processes, as everybody sees it. */

/** Of memory, from the mildest on. What each does is told in docs/pressure.md. */
export const PRESSURE_STAGES = ["calm", "notice", "warn", "throttle", "freeze", "refuse"] as const;
export type PressureStage = (typeof PRESSURE_STAGES)[number];

/** Of processes. */
export const PROCESS_STAGES = ["calm", "warn", "alert", "refuse"] as const;
export type ProcessStage = (typeof PROCESS_STAGES)[number];

/** Who is frozen first when the host is short of memory: a sandbox whose metadata has this key, with the value `low`. */
export const PRIORITY_KEY = "holdfast.priority";
export const PRIORITIES = ["normal", "low"] as const;

export interface SandboxPressure {
  readonly memory: PressureStage;
  readonly processes: ProcessStage;
  /** Whether it stands still because the host is short of memory. Any use of it ends that. */
  readonly frozen: boolean;
}

/** What has happened since the server was started. */
export interface PressureTotals {
  /** Crossings of a stage, of the host and of sandboxes. */
  readonly crossings: number;
  readonly zombiesReaped: number;
  readonly orphansEnded: number;
  /** Processes that belonged to nobody any more. */
  readonly unownedEnded: number;
  readonly cleanUpFailures: number;
  readonly frozen: number;
  readonly thawed: number;
  readonly refused: number;
}

export interface HostEvent {
  readonly at: string;
  readonly kind: "pressure" | "pid_pressure" | "cleaned_up" | "unowned_ended";
  readonly message: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export interface HostPressure {
  readonly memory: {
    readonly stage: PressureStage;
    /** What the stage is told from. */
    readonly from: "psi" | "usage";
    /** Percent of the last ten seconds in which something, or everything, waited for memory; null without PSI. */
    readonly stall: { readonly some: number; readonly full: number } | null;
    readonly usedPercent: number;
  };
  readonly processes: {
    readonly stage: ProcessStage;
    /** Of the whole host, or of the cgroups around us. */
    readonly used: number;
    readonly limit: number;
    /** Of our sandboxes' commands: the living, the dead that nobody waited for, those that outlived their command. */
    readonly live: number;
    readonly zombies: number;
    readonly orphans: number;
  };
  /** Sandboxes that stand still because of it. */
  readonly frozen: number;
  /** The newest last; some dozens are kept. */
  readonly events: readonly HostEvent[];
  readonly totals: PressureTotals;
}

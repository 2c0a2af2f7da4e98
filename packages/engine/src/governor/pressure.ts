/** How short memory is: what the kernel says of stalls, and what is in use. */

/** Percent of the last ten seconds in which tasks waited for memory: at least one of them, and all that could run. */
export interface StallFigures {
  readonly some: number;
  readonly full: number;
}

/** The text of a memory.pressure file, or of /proc/pressure/memory. Undefined if it is none. */
export function parseStall(text: string): StallFigures | undefined {
  const share = (kind: string) => new RegExp(`^${kind} avg10=(\\d+(?:\\.\\d+)?) `, "m").exec(text)?.[1];
  const [some, full] = [share("some"), share("full")];
  return some === undefined ? undefined : { some: Number(some), full: Number(full ?? 0) };
}

/** One number for both: time in which nothing at all went on counts whole, time in which something did counts half. */
export function stallPercent({ some, full }: StallFigures): number {
  return Math.max(full, some / 2);
}

export interface MemoryReading {
  /** Undefined where the kernel does not tell. */
  readonly stall: StallFigures | undefined;
  /** Without page cache that can be had back. */
  readonly usedBytes: number;
  readonly limitBytes: number;
}

export interface ProcessReading {
  /** Processes and threads, as the limit counts them: dead ones that nobody has waited for too. */
  readonly used: number;
  readonly limit: number;
}

export interface PressureReading {
  readonly memory: MemoryReading;
  readonly processes: ProcessReading;
}

/** Together they are what the limit counts. */
export interface ProcessCounts {
  readonly live: number;
  /** Dead, and not waited for by whoever started them. */
  readonly zombies: number;
  /** Alive, although the command that they belong to has ended. */
  readonly orphans: number;
}

export interface CleanUpReport {
  readonly zombiesReaped: number;
  readonly orphansEnded: number;
  /** Orphans that outlived it. */
  readonly failed: number;
}

/** What belonged to nobody any more and was ended. */
export interface UnownedReport {
  /** The sandbox it came from. */
  readonly id: string;
  readonly processes: number;
  readonly why: string;
}

export interface ReadOptions {
  /** Read what memory is in use, too, where there are figures of stalls: it costs as much again. Else it is 0 there. */
  readonly usage?: boolean | undefined;
  /** Below so much percent of the limit, page cache may be counted as in use. */
  readonly exactFromPercent?: number | undefined;
}

/** Looks at one sandbox from outside; cheap, and without the guest's help unless it says otherwise. */
export interface SandboxGauge {
  read(options?: ReadOptions): PressureReading;
  countProcesses(): ProcessCounts;
  /** Whether a command runs, or a connection, a file or a watch is open. */
  readonly isBusy: boolean;
  /**
   * Ends what outlived the command it belongs to, and has dead processes waited for as far as that does no harm: those
   * whose parent is ended go with it, other parents are reminded. Asks the guest which commands run.
   */
  cleanUp(): Promise<CleanUpReport>;
  /** What programs inside read at PRESSURE_PATH. */
  tell(text: string): void;
}

/** Where programs inside find what `tell` said. */
export const PRESSURE_PATH = "/dev/holdfast/pressure";
export const CALM_TEXT = "calm\n";

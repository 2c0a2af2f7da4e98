/** The result of a run: one object for programs, a sentence or none for people. */
import { type CommandEnding, describeIncident, type HoldfastError, type MemoryReport } from "@holdfast/protocol";
import { exitCodeOfEnding, exitCodeOfError, READER_GONE } from "./exit-code.js";

export interface RunReport {
  readonly cause: CommandEnding["cause"] | null;
  readonly incidents: CommandEnding["incidents"];
  /** What `holdfast run` itself exits with. */
  readonly exitCode: number;
  readonly usage: CommandEnding["usage"] | null;
  readonly message: string;
  readonly sandboxId: string | null;
  /** Only of a run from an image with a name: which one it was, and how much memory the sandbox had. */
  readonly image?: { readonly id: string; readonly digest: string };
  readonly memory?: MemoryReport;
  /** Only when the command did not run, or we do not know how it ended, because of us or of how we were called. */
  readonly error?: ReturnType<HoldfastError["toJSON"]>;
}

export function reportOfEnding(
  ending: CommandEnding,
  sandboxId: string,
  from: Pick<RunReport, "image" | "memory"> = {},
): RunReport {
  const { cause, incidents, usage, message } = ending;
  return { cause, incidents, exitCode: exitCodeOfEnding(ending), usage, message, sandboxId, ...from };
}

export function reportOfError(error: HoldfastError, sandboxId: string | undefined, exitCode?: number): RunReport {
  return {
    cause: null,
    incidents: [],
    exitCode: exitCode ?? exitCodeOfError(error),
    usage: null,
    message: error.message,
    sandboxId: sandboxId ?? null,
    error: error.toJSON(),
  };
}

/**
 * What a person is told on stderr. A command that merely exited speaks for itself, and whoever wrote `| head -1` knows;
 * what happened on the way is told always.
 */
export function notesOfEnding({ cause, incidents, message }: CommandEnding): string[] {
  const isPlain = cause.kind === "exited" || (cause.kind === "canceled" && cause.by === READER_GONE);
  return isPlain ? incidents.map((incident) => describeIncident(incident)) : [message];
}

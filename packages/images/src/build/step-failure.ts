/** Why a step failed, in the words of somebody who wants to know what to do about it. */
import {
  type CommandCause,
  type CommandEnding,
  describeCommandCause,
  formatBytes,
  formatDuration,
  HoldfastError,
  type OutOfDisk,
  type OutOfMemory,
  sizeFlag,
} from "@holdfast/protocol";
import type { BuildFailure } from "../types.js";
import { type BuildSettings, nextMemorySize } from "./build-settings.js";

const MIB = 1024 * 1024;

/** What is known where it happens; the step and the last lines come from whoever runs the steps. */
export type FailureFacts = Omit<BuildFailure, "step" | "tail">;

export class StepError extends Error {
  override readonly name = "StepError";
  readonly facts: FailureFacts;

  constructor(
    facts: Partial<FailureFacts> & Pick<FailureFacts, "message">,
    options: { readonly cause?: unknown } = {},
  ) {
    super(facts.message, options);
    this.facts = { hint: null, cause: null, limitBytes: null, peakBytes: null, suggestedMemoryMb: null, ...facts };
  }
}

export interface FailingStep {
  /** `step 3 (RUN make -j4)`. */
  readonly what: string;
  readonly settings: BuildSettings;
  /** Which setting would help. */
  readonly memory: { readonly option: "memoryMb" | "runtimeMemoryMb"; readonly flag: string };
}

export const BUILDER_MEMORY = { option: "memoryMb", flag: "--builder-memory" } as const;
export const RUNTIME_MEMORY = { option: "runtimeMemoryMb", flag: "--runtime-memory" } as const;

/** Undefined if the command has done what it was there for. */
export function failureOf(ending: CommandEnding, step: FailingStep): StepError | undefined {
  const { cause } = ending;
  if (cause.kind === "exited" && cause.code === 0) return undefined;
  const oom = [cause, ...ending.incidents].find((fact) => fact.kind === "out_of_memory");
  // What we ended ourselves was not ended by what else happened to it.
  if (oom !== undefined && cause.kind !== "timed_out" && cause.kind !== "canceled") return outOfMemory(oom, step);
  return failureOfCause(cause, step, ending);
}

export function failureOfCause(cause: CommandCause, step: FailingStep, ending?: CommandEnding): StepError {
  switch (cause.kind) {
    case "out_of_memory":
      return outOfMemory(cause, step);
    case "out_of_disk":
      return outOfDisk(cause, step);
    case "timed_out":
      return timedOut(step);
    case "out_of_pids":
    case "exited":
    case "signaled":
    case "canceled":
    case "lost":
      return new StepError({
        message: `${step.what} failed: ${lowerFirst(describeCommandCause(cause))}`,
        cause,
        peakBytes: ending?.usage.memoryPeakBytes ?? null,
      });
  }
}

export function outOfMemory(cause: OutOfMemory, { what, settings, memory }: FailingStep): StepError {
  const { limitBytes, peakBytes } = cause;
  if (limitBytes === null) {
    return new StepError({
      message: `${what} was killed because the host itself ran out of memory`,
      hint: "Build fewer images at once, or give the host more memory.",
      cause,
      peakBytes,
    });
  }
  const next = nextMemorySize(limitBytes, settings.mostMemoryBytes);
  const peak = peakBytes === null ? "" : ` (peak ${formatBytes(peakBytes)})`;
  return new StepError({
    message: `${what} ran out of memory: it needed more than ${formatBytes(limitBytes)}${peak}`,
    hint:
      next === undefined
        ? "It had all the memory that this host has: let it need less, or build on a larger host."
        : `Give ${memory.option === "memoryMb" ? "the build" : "it"} more: builder({ ${memory.option}: ${next / MIB} }) or ${memory.flag} ${sizeFlag(next)}.`,
    cause,
    limitBytes,
    peakBytes,
    suggestedMemoryMb: next === undefined ? null : next / MIB,
  });
}

export function outOfDisk(cause: OutOfDisk, { what, settings }: FailingStep): StepError {
  const diskMb = Math.ceil((settings.diskBytes * 2) / MIB);
  return new StepError({
    message: `${what} ran out of disk: it had ${formatBytes(cause.limitBytes)} left of the build's ${formatBytes(settings.diskBytes)}`,
    hint: `Give the build more: builder({ diskMb: ${diskMb} }).`,
    cause,
    limitBytes: cause.limitBytes,
  });
}

export function timedOut({ what, settings }: FailingStep): StepError {
  const limitMs = settings.timeoutMs;
  return new StepError({
    message: `${what} was stopped: the build's ${formatDuration(limitMs)} were over`,
    hint: `Give the build more time: builder({ timeoutS: ${Math.ceil((limitMs * 2) / 1000)} }).`,
    cause: { kind: "timed_out", limitMs },
  });
}

/** Whatever else was thrown while a step ran. */
export function stepErrorFrom(reason: unknown, step: FailingStep): StepError {
  if (reason instanceof StepError) return reason;
  const error = HoldfastError.from(reason);
  const { cause } = error.details;
  if (isCause(cause)) return failureOfCause(cause, step);
  return new StepError(
    { message: `${step.what} failed: ${error.message}`, hint: error.hint ?? null },
    { cause: reason },
  );
}

/** A sandbox that ended has a cause too, some of which a command can have. */
function isCause(value: unknown): value is OutOfMemory | OutOfDisk {
  const kind = typeof value === "object" && value !== null && "kind" in value ? value.kind : undefined;
  return kind === "out_of_memory" || kind === "out_of_disk";
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

/** Proves that an image comes up in the memory that it is to be run with at least, and measures what it takes. */
import type { LayerId, Sandbox } from "@holdfast/engine";
import { type CommandCause, formatBytes, formatDuration, HoldfastError } from "@holdfast/protocol";
import { startImage } from "../runtime/start-image.js";
import type { ImageConfig, ImageFloor } from "../types.js";
import { FINALIZE_STEP } from "./plan.js";
import { runCommand } from "./run-command.js";
import { FailedStep } from "./stage-runner.js";
import { type StepBench, withSandbox } from "./step-bench.js";
import {
  type FailingStep,
  failureOf,
  failureOfCause,
  RUNTIME_MEMORY,
  StepError,
  stepErrorFrom,
} from "./step-failure.js";

const READY_MS = 600_000;
const TRIAL = ["/bin/sh", "-c", ":"];

export async function finalizeImage(
  bench: StepBench,
  image: { readonly layers: readonly LayerId[]; readonly config: ImageConfig },
): Promise<ImageFloor> {
  const { journal, settings, signal } = bench;
  const { start } = image.config;
  const failing: FailingStep = {
    what: `the start in ${formatBytes(settings.floorBytes)} (step finalize)`,
    settings,
    memory: RUNTIME_MEMORY,
  };
  journal.log(
    FINALIZE_STEP,
    "info",
    start === null
      ? `starting it in ${formatBytes(settings.floorBytes)}`
      : `starting it in ${formatBytes(settings.floorBytes)}: ${start.command}`,
  );
  journal.updateStep(FINALIZE_STEP, { state: "running", startedAt: new Date().toISOString() });
  try {
    const place = { ...image, memoryBytes: settings.floorBytes, diskBytes: settings.diskBytes };
    const floor = await withSandbox(bench, place, (sandbox) => prove(bench, sandbox, image.config, failing));
    const { startPeakBytes: peak, readyMs } = floor;
    journal.log(
      FINALIZE_STEP,
      "info",
      readyMs === null || peak === null
        ? "it comes up"
        : `ready after ${formatDuration(readyMs)}, with ${formatBytes(peak)} at most`,
    );
    journal.updateStep(FINALIZE_STEP, { state: "done", endedAt: new Date().toISOString(), memoryPeakBytes: peak });
    return floor;
  } catch (reason) {
    signal.throwIfAborted();
    const failure = stepErrorFrom(reason, failing);
    journal.updateStep(FINALIZE_STEP, {
      state: "failed",
      endedAt: new Date().toISOString(),
      memoryPeakBytes: failure.facts.peakBytes,
    });
    throw new FailedStep(FINALIZE_STEP, failure);
  }
}

async function prove(
  bench: StepBench,
  sandbox: Sandbox,
  config: ImageConfig,
  failing: FailingStep,
): Promise<ImageFloor> {
  const memoryBytes = bench.settings.floorBytes;
  if (config.start === null) {
    await tryShell(bench, sandbox, failing);
    return { memoryBytes, startPeakBytes: null, readyMs: null };
  }
  const leftMs = Math.max(1, bench.endsAtMs - Date.now());
  try {
    const { readyMs } = await startImage(sandbox, config.start, {
      timeoutMs: Math.min(READY_MS, leftMs),
      signal: bench.signal,
      onLine: (text, stream) => bench.journal.log(FINALIZE_STEP, stream, text),
    });
    const { memoryPeakBytes } = await sandbox.stats();
    return { memoryBytes, startPeakBytes: memoryPeakBytes, readyMs };
  } catch (reason) {
    throw startFailure(HoldfastError.from(reason), failing);
  }
}

/** An image need not have a shell; one that has must be able to start it. */
async function tryShell(bench: StepBench, sandbox: Sandbox, failing: FailingStep): Promise<void> {
  try {
    const ending = await runCommand(
      sandbox,
      { argv: TRIAL, cwd: "/" },
      {
        signal: bench.signal,
        endsAtMs: bench.endsAtMs,
        onLine: (stream, text) => bench.journal.log(FINALIZE_STEP, stream, text),
      },
    );
    const failure = failureOf(ending, failing);
    if (failure !== undefined) throw failure;
  } catch (reason) {
    if (!(reason instanceof HoldfastError) || reason.code !== "command_failed_to_start") throw reason;
    bench.journal.log(FINALIZE_STEP, "info", "the image has no shell to try");
  }
}

/** The start says what ended it; if that was memory, what to do about it is known. */
function startFailure(error: HoldfastError, failing: FailingStep): StepError {
  const cause = error.details.cause as CommandCause | undefined;
  const peakBytes = typeof error.details.peakBytes === "number" ? error.details.peakBytes : null;
  if (cause?.kind === "out_of_memory") {
    const { facts } = failureOfCause(cause, failing);
    return new StepError(
      { ...facts, message: `the image cannot start in ${formatBytes(failing.settings.floorBytes)}: ${facts.message}` },
      { cause: error },
    );
  }
  return new StepError(
    { message: error.message, hint: error.hint ?? null, cause: cause ?? null, peakBytes },
    { cause: error },
  );
}

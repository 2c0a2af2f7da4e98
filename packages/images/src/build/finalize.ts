/** Proves that an image comes up in the memory that it is to be run with at least, and measures what it takes. */
import type { Command, LayerId, Sandbox } from "@holdfast/engine";
import { type CommandCause, formatBytes, formatDuration, HoldfastError, type OutOfMemory } from "@holdfast/protocol";
import { userInside } from "../runtime/image-user.js";
import { startImage } from "../runtime/start-image.js";
import type { ImageConfig, ImageFloor } from "../types.js";
import { trialDiskBytes } from "./build-settings.js";
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
import { ROOT } from "./steps/step-job.js";

const READY_MS = 600_000;
const TRIAL = ["/bin/sh", "-c", ":"];

export interface FinalImage {
  readonly floor: ImageFloor;
  /** With its user by number where the engine does not know it by name. */
  readonly config: ImageConfig;
}

export async function finalizeImage(
  bench: StepBench,
  image: { readonly layers: readonly LayerId[]; readonly config: ImageConfig },
): Promise<FinalImage> {
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
    const { layers, config } = image;
    const diskBytes = trialDiskBytes(settings, await bench.context.engine.budget({ reservations: false }));
    const place = { layers, config, memoryBytes: settings.floorBytes, diskBytes };
    const { floor, user } = await withSandbox(bench, place, async (sandbox) => {
      const known = await knownUser(sandbox, config);
      return { user: known, floor: await prove(bench, { sandbox, config, user: known, failing }) };
    });
    const { startPeakBytes: peak, readyMs } = floor;
    journal.log(
      FINALIZE_STEP,
      "info",
      readyMs === null || peak === null
        ? "it comes up"
        : `ready after ${formatDuration(readyMs)}, with ${formatBytes(peak)} at most`,
    );
    journal.updateStep(FINALIZE_STEP, { state: "done", endedAt: new Date().toISOString(), memoryPeakBytes: peak });
    return { floor, config: config.user?.includes(":") === true ? { ...config, user } : config };
  } catch (reason) {
    signal.throwIfAborted();
    const failure = stepErrorFrom(reason, failing);
    journal.failStep(FINALIZE_STEP, failure.facts.peakBytes);
    throw new FailedStep(FINALIZE_STEP, failure);
  }
}

/** Whoever it does not know would be root to the engine, which is the last thing that an image with a user means. */
async function knownUser(sandbox: Sandbox, { user }: ImageConfig): Promise<string> {
  if (user === null) return ROOT;
  const known = await userInside(sandbox, user);
  await sandbox.files.stat("/", { user: known });
  return known;
}

interface Proof {
  readonly sandbox: Sandbox;
  readonly config: ImageConfig;
  readonly user: string;
  readonly failing: FailingStep;
}

async function prove(bench: StepBench, proof: Proof): Promise<ImageFloor> {
  const { sandbox, config, user, failing } = proof;
  const memoryBytes = bench.settings.floorBytes;
  if (config.start === null) {
    await tryShell(bench, proof);
    return { memoryBytes, startPeakBytes: null, readyMs: null };
  }
  const leftMs = Math.max(1, bench.endsAtMs - Date.now());
  let command: Command | undefined;
  try {
    const { readyMs, listens } = await startImage(sandbox, config.start, {
      timeoutMs: Math.min(READY_MS, leftMs),
      signal: bench.signal,
      launch: async (spec) => {
        command = await sandbox.start({ ...spec, user });
        return command;
      },
      onLine: (text, stream) => bench.journal.log(FINALIZE_STEP, stream, text),
    });
    const { memoryPeakBytes } = await sandbox.stats();
    return {
      memoryBytes,
      startPeakBytes: memoryPeakBytes,
      readyMs,
      ...(listens === undefined ? {} : { listens }),
    };
  } catch (reason) {
    const error = HoldfastError.from(reason);
    const oom = command === undefined ? undefined : await lostToMemory(error, command);
    throw startFailure(error, oom ?? (error.details.cause as CommandCause | undefined), failing);
  }
}

/** One that never gets ready may have lost a child to the limit, of which only its end tells. */
async function lostToMemory({ details }: HoldfastError, command: Command): Promise<OutOfMemory | undefined> {
  if ((details.cause as CommandCause | undefined)?.kind !== "timed_out") return undefined;
  const { incidents } = await command.cancel("the end of the build", { graceMs: 0 });
  return incidents.find((incident) => incident.kind === "out_of_memory");
}

/** An image need not have a shell; one that has must be able to start it. */
async function tryShell(bench: StepBench, { sandbox, user, failing }: Proof): Promise<void> {
  try {
    const ending = await runCommand(
      sandbox,
      { argv: TRIAL, cwd: "/", user },
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
function startFailure(error: HoldfastError, cause: CommandCause | undefined, failing: FailingStep): StepError {
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

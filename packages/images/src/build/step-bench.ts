/** What steps work with, and the sandboxes that they work in. */
import { createLayerId, describeWaiting, type LayerId, type NetworkSpec, type Sandbox } from "@holdfast/engine";
import {
  type CommandCause,
  createSandboxId,
  HoldfastError,
  type SandboxEnding,
  type SandboxId,
} from "@holdfast/protocol";
import type { ImagesContext } from "../context.js";
import { plainUser } from "../runtime/image-user.js";
import { claimLayer } from "../store/claims.js";
import type { ImageConfig } from "../types.js";
import type { BuildFiles } from "./build-files.js";
import type { BuildSettings } from "./build-settings.js";
import type { Journal } from "./journal.js";
import { BASE_STEP } from "./plan.js";

const OUTPUT_BYTES = 1024 * 1024;
const LEAST_DISK_BYTES = 1024 * 1024;

export interface StepBench {
  readonly context: ImagesContext;
  readonly files: BuildFiles;
  readonly journal: Journal;
  readonly settings: BuildSettings;
  readonly network: NetworkSpec;
  /** With whom it waits when the host has no room. */
  readonly lane: string;
  readonly signal: AbortSignal;
  /** When the build's time is up, by `Date.now()`. */
  readonly endsAtMs: number;
}

export interface BuildSandbox {
  readonly layers: readonly LayerId[];
  /** What it begins with as its own. A layer that comes of it takes this one's place. */
  readonly disk?: LayerId | undefined;
  readonly config: ImageConfig;
  readonly memoryBytes: number;
  /** What it starts with of that; all of it if absent. */
  readonly memoryStartBytes?: number | undefined;
  readonly diskBytes: number;
  /** The build's if absent. */
  readonly pids?: number | undefined;
  readonly makesLayer?: boolean | undefined;
}

export interface NewLayer {
  readonly layer: LayerId;
  readonly sizeBytes: number;
  readonly memoryPeakBytes: number | null;
}

/** What `work` has written in a sandbox becomes a layer, claimed for the build. */
export async function withNewLayer(
  bench: StepBench,
  options: BuildSandbox,
  work: (sandbox: Sandbox) => Promise<void>,
): Promise<NewLayer> {
  const { engine, store } = bench.context;
  return withSandbox(bench, { ...options, makesLayer: true }, async (sandbox) => {
    await work(sandbox);
    const ending = await sandbox.stop("the end of the step");
    if (ending.cause.kind !== "stopped") throw endedBy(ending);
    const layer = createLayerId();
    claimLayer(store.directory, bench.journal.id, layer);
    await engine.layers.fromStopped(sandbox.id, layer);
    return {
      layer,
      sizeBytes: await engine.layers.sizeBytes(layer),
      memoryPeakBytes: ending.usage.memoryPeakBytes,
    };
  });
}

/** A sandbox for as long as `work` takes; nothing is left of it. */
export async function withSandbox<T>(
  bench: StepBench,
  place: BuildSandbox,
  work: (sandbox: Sandbox) => Promise<T>,
): Promise<T> {
  const { layers, disk, config, memoryBytes, memoryStartBytes = memoryBytes, diskBytes, makesLayer = false } = place;
  const { context, files, journal, settings, signal } = bench;
  const { engine } = context;
  signal.throwIfAborted();
  const id = createSandboxId();
  const forget = files.noteSandbox(journal.id, id);
  let sandbox: Sandbox | undefined;
  const onAbort = (): void => void sandbox?.kill("the end of the build");
  try {
    sandbox = await engine.create(
      {
        id,
        image: { kind: "layers", layers },
        limits: {
          memoryBytes: memoryStartBytes,
          memoryMaxBytes: memoryStartBytes < memoryBytes ? memoryBytes : undefined,
          cpuMillis: settings.cpuMillis,
          pids: place.pids ?? settings.pids,
          diskBytes: Math.max(LEAST_DISK_BYTES, diskBytes),
          outputBytes: OUTPUT_BYTES,
          wallMs: undefined,
        },
        env: config.env,
        mounts: [],
        hostname: "build",
        defaultUser: plainUser(config.user ?? "root"),
        whenOwnerDies: "end",
        labels: { "holdfast.build": journal.id },
        workdir: config.workdir ?? undefined,
        disk: disk === undefined ? undefined : { from: disk },
        network: bench.network,
        makesLayer,
      },
      {
        signal,
        admission: {
          kind: "build",
          lane: bench.lane,
          // A build has a deadline of its own, which ends this too.
          waitMs: Math.max(1, bench.endsAtMs - Date.now()),
          onWaiting: (waiting) => journal.log(BASE_STEP, "info", `the build ${describeWaiting(waiting)}`),
        },
      },
    );
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    return await work(sandbox);
  } finally {
    signal.removeEventListener("abort", onAbort);
    await sandbox?.kill("the end of the step");
    if (await discardStopped(bench, id)) forget();
  }
}

/** A sandbox that ended under the hands of a step, as an error that says why. */
export function endedBy(ending: SandboxEnding): HoldfastError {
  const cause: CommandCause | undefined =
    ending.cause.kind === "out_of_memory" || ending.cause.kind === "out_of_disk" ? ending.cause : undefined;
  return new HoldfastError("sandbox_ended", `its sandbox has ended: ${ending.message}`, {
    details: cause === undefined ? {} : { cause },
  });
}

/** One that was stopped, and then something went wrong before its files had become a layer. False if it is still there. */
async function discardStopped({ context }: StepBench, id: SandboxId): Promise<boolean> {
  try {
    if (context.engine.stopped().includes(id)) await context.engine.discard(id);
    return true;
  } catch (error) {
    const { message } = HoldfastError.from(error);
    context.log.warn(
      { left: "sandbox", sandbox: id, error: message },
      "a build's sandbox could not be removed; the next start tries again",
    );
    return false;
  }
}

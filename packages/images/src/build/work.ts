/** The work of one build: the only one of its content, for as long as somebody waits for it. */
import { type LinkedSignal, linkSignals, type NetworkSpec } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import { baseKey, type Digest } from "@holdfast/recipe";
import type { ImagesContext } from "../context.js";
import { claimImage } from "../store/claims.js";
import { createImageId } from "../store/ids.js";
import { putNamed } from "../store/put-named.js";
import type { BuildFailure, BuildId, ImageRecord } from "../types.js";
import { finishedConfig } from "./apply-step.js";
import { type BuildFiles, HEARTBEAT_MS } from "./build-files.js";
import type { BuildOrder } from "./build-order.js";
import { describeSettings } from "./build-settings.js";
import { finalizeImage } from "./finalize.js";
import { imagesOf, isAsOrdered } from "./images-of.js";
import type { Journal } from "./journal.js";
import { BASE_STEP, type BuildPlan } from "./plan.js";
import type { Slots } from "./slots.js";
import { FailedStep, StageRunner } from "./stage-runner.js";
import type { StepBench } from "./step-bench.js";
import { BUILDER_MEMORY, StepError, timedOut } from "./step-failure.js";

/** Commands know the deadline; what else may hang is cut off this much later. */
const LATE_MS = 5000;
const MAX_TIMER_MS = 2 ** 31 - 1;

export interface WorkParts {
  readonly context: ImagesContext;
  readonly files: BuildFiles;
  readonly slots: Slots;
  readonly egress: { readonly deny: readonly string[]; readonly allow: readonly string[] };
  /** This process wants to end. */
  readonly closing: AbortSignal;
  /** What is under way here. */
  readonly works: Map<BuildId, Promise<void>>;
}

export interface WorkJob {
  readonly journal: Journal;
  readonly order: BuildOrder;
  readonly plan: BuildPlan;
  /** What it holds, so that nobody else builds the same beside it. */
  readonly place: Digest;
  /** By `baseKey`. */
  readonly bases: ReadonlyMap<string, ImageRecord>;
  /** The image as it is, if only its floor is to be found anew. */
  readonly found: ImageRecord | undefined;
}

/** Somebody has to have asked for it already. */
export function startWork(parts: WorkParts, job: WorkJob): void {
  const { id } = job.journal;
  const done = new Work(parts, job).run().finally(() => parts.works.delete(id));
  parts.works.set(id, done);
}

class Work {
  readonly #parts: WorkParts;
  readonly #job: WorkJob;
  readonly #stop = new AbortController();
  readonly #linked: LinkedSignal;
  #ended = false;

  constructor(parts: WorkParts, job: WorkJob) {
    this.#parts = parts;
    this.#job = job;
    this.#linked = linkSignals([this.#stop.signal, parts.closing]);
  }

  get #signal(): AbortSignal {
    return this.#linked.signal;
  }

  /** Never rejects. */
  async run(): Promise<void> {
    const { files, slots, context } = this.#parts;
    const { journal, place } = this.#job;
    journal.onLost(() => this.#stop.abort(new HoldfastError("canceled", "another process has taken the build over")));
    void this.#watchAskers();
    let leave: (() => void) | undefined;
    let timer: NodeJS.Timeout | undefined;
    const release = (): void => files.releaseHash(place, journal.id);
    try {
      if (slots.isFull) {
        journal.log(BASE_STEP, "info", "waiting for other builds to end");
        journal.update({ state: "waiting" });
      }
      leave = await slots.enter(this.#signal);
      journal.update({ state: "building", startedAt: journal.info.startedAt ?? new Date().toISOString() });
      const { timeoutMs } = this.#job.order.settings;
      timer = setTimeout(() => this.#stop.abort(this.#lateError()), Math.min(MAX_TIMER_MS, timeoutMs + LATE_MS));
      const record = await this.#build(Date.now() + timeoutMs);
      journal.end({ state: "ready", imageId: record.id }, release);
    } catch (reason) {
      this.#end(reason, release);
    } finally {
      this.#ended = true;
      this.#linked.unlink();
      clearTimeout(timer);
      leave?.();
      files.wakes.wake(journal.id);
      context.log.info({ build: journal.id, state: journal.info.state }, "a build has ended");
    }
  }

  async #build(endsAtMs: number): Promise<ImageRecord> {
    const { context, files, egress } = this.#parts;
    const { journal, order, plan, bases, found } = this.#job;
    const { store, engine } = context;
    const network: NetworkSpec = order.settings.network ? { kind: "egress", ...egress } : { kind: "none" };
    const { settings } = order;
    const lane = order.owner ?? "";
    const bench: StepBench = { context, files, journal, settings, network, lane, signal: this.#signal, endsAtMs };
    const claimed = found === undefined ? [...bases.values()] : [found];
    for (const record of claimed) {
      claimImage({ directory: store.directory, layers: engine.layers, holder: journal.id, record });
    }
    if (found !== undefined) return this.#finalizeAgain(bench, found);
    journal.log(BASE_STEP, "info", `building with ${describeSettings(settings)}`);
    const runner = new StageRunner(bench, plan, bases);
    const state = await runner.run();
    const { floor, config } = await finalizeImage(bench, {
      layers: state.layers,
      config: { ...finishedConfig(state), start: order.recipe.start ?? state.config.start },
    });
    const known = imagesOf(store, { ...order, digest: plan.digest }).find((record) => isAsOrdered(record, order));
    return this.#put({
      version: 1,
      id: known?.id ?? createImageId(),
      kind: "built",
      digest: plan.digest,
      owner: order.owner,
      createdAt: new Date().toISOString(),
      layers: state.layers,
      below: null,
      disk: null,
      config,
      floor,
      parent: this.#parent()?.id ?? null,
      fromSandbox: null,
      buildId: journal.id,
      limits: order.limits,
    });
  }

  async #finalizeAgain(bench: StepBench, found: ImageRecord): Promise<ImageRecord> {
    const { journal, order } = this.#job;
    journal.log(BASE_STEP, "info", `the image is there; only its floor changes`);
    for (const { step } of journal.info.steps) {
      if (/^\d+$/.test(step)) journal.updateStep(step, { state: "cached" });
    }
    const { floor } = await finalizeImage(bench, found);
    if (isAsOrdered(found, order)) return this.#put({ ...found, floor });
    // The operator's stays as it is for everybody else, and one with other limits for those who use it.
    const { owner, limits } = order;
    return this.#put({ ...found, id: createImageId(), createdAt: new Date().toISOString(), owner, limits, floor });
  }

  #put(record: ImageRecord): ImageRecord {
    this.#signal.throwIfAborted();
    putNamed(this.#parts.context.store, record, this.#job.order.names);
    return record;
  }

  /** Of the image's own chain of stages. */
  #parent(): ImageRecord | undefined {
    const { plan, bases } = this.#job;
    let { base } = plan.last;
    while (base.kind === "stage") {
      const stage = plan.stages[base.index];
      if (stage === undefined) return undefined;
      base = stage.base;
    }
    return bases.get(baseKey(base));
  }

  #end(reason: unknown, release: () => void): void {
    const { context } = this.#parts;
    const { journal } = this.#job;
    const late = this.#stop.signal.reason instanceof StepError ? this.#stop.signal.reason : undefined;
    const isCanceled = this.#signal.aborted && late === undefined;
    const failure = isCanceled ? undefined : this.#failure(late ?? reason);
    try {
      const text = failure?.message ?? HoldfastError.from(this.#signal.reason, "canceled").message;
      try {
        journal.log(failure?.step ?? BASE_STEP, "info", text);
      } finally {
        journal.end(failure === undefined ? { state: "canceled" } : { state: "failed", failure }, release);
      }
    } catch (error) {
      // A disk that is full, for one. Whoever waits finds that nobody works on it any more.
      context.log.warn(
        { build: journal.id, error: HoldfastError.from(error).message },
        "the end of a build is not written",
      );
    }
  }

  #failure(reason: unknown): BuildFailure {
    const { journal } = this.#job;
    if (reason instanceof FailedStep) {
      return { step: reason.label, ...reason.reason.facts, tail: journal.tailOf(reason.label) };
    }
    const step = journal.info.steps.find(({ state }) => state === "running")?.step ?? BASE_STEP;
    const facts =
      reason instanceof StepError
        ? reason.facts
        : new StepError({
            message: HoldfastError.from(reason).message,
            hint: HoldfastError.from(reason).hint ?? null,
          }).facts;
    return { step, ...facts, tail: journal.tailOf(step) };
  }

  #lateError(): StepError {
    const { journal, order } = this.#job;
    const running = journal.info.steps.find(({ state }) => state === "running");
    const what = running === undefined ? "the build" : `step ${running.step} (${running.title})`;
    return timedOut({ what, settings: order.settings, memory: BUILDER_MEMORY });
  }

  /** It goes on for as long as anybody wants it, in whatever process. */
  async #watchAskers(): Promise<void> {
    const { files } = this.#parts;
    const { id } = this.#job.journal;
    while (!this.#ended && !this.#signal.aborted) {
      const since = files.wakes.version(id);
      if (!files.hasAskers(id)) {
        this.#stop.abort(new HoldfastError("canceled", "canceled: nobody waits for it any more"));
        return;
      }
      await files.wakes.changed(id, since, { atMostMs: HEARTBEAT_MS, signal: this.#signal });
    }
  }
}

/** Runs the steps of the stages that are needed, from the last state that the step cache knows. */
import { readdirSync } from "node:fs";
import { createLayerId, type LayerId, type Sandbox } from "@holdfast/engine";
import { describeIncident, formatBytes, formatDuration, HoldfastError } from "@holdfast/protocol";
import { baseKey, type Digest, type RecipeBase, type RecipeStep } from "@holdfast/recipe";
import { claimLayer } from "../store/claims.js";
import type { BuildStepStatus, ImageRecord } from "../types.js";
import { applyStep, configOnBase, type StageConfig, writesFiles } from "./apply-step.js";
import { nextMemorySize } from "./build-settings.js";
import { digestOfText, ownDigest } from "./own-digest.js";
import type { BuildPlan, PlannedStage, PlannedStep } from "./plan.js";
import { type BuildSandbox, type NewLayer, type StepBench, withNewLayer, withSandbox } from "./step-bench.js";
import { BUILDER_MEMORY, type FailingStep, outOfDisk, type StepError, stepErrorFrom } from "./step-failure.js";
import { runCopyFromStep } from "./steps/copy-from-step.js";
import { runCopyArchiveStep, runCopyStep } from "./steps/copy-step.js";
import { runUserStep, runWorkdirStep } from "./steps/place-step.js";
import { runProgramStep } from "./steps/run-step.js";
import type { StepJob } from "./steps/step-job.js";

const MIB = 1024 * 1024;

/** What stands after a step. */
export interface StageState extends StageConfig {
  /** Uppermost first. */
  readonly layers: readonly LayerId[];
  /** Whether a step on the way there had to be run: what was made on top of an earlier result of it may not fit. */
  readonly isFresh: boolean;
}

interface StepLayer {
  readonly id: LayerId;
  readonly cached: boolean;
  readonly isEmpty: boolean;
}

/** The engine stacks some more; the rest is for whoever builds on the image. */
const DEEPEST = 100;

/**
 * For a sandbox that is only read from, by a step that has its own already. As much as that one would be twice the build's, and
 * more than there is on many a host: it would wait for itself.
 */
const SOURCE = { memoryBytes: 128 * MIB, diskBytes: 16 * MIB, pids: 24 };

/** What a step writes on. */
interface Footing {
  readonly below: readonly LayerId[];
  /** Of a stack that is deep enough, the uppermost layer: the step's own begins as a copy of it and takes its place. */
  readonly top: LayerId | undefined;
  /** Where the result is looked for. It means nothing on another footing. */
  readonly chain: Digest;
}

/** A failure, with the step that it happened in. */
export class FailedStep extends Error {
  override readonly name = "FailedStep";
  readonly label: string;
  readonly reason: StepError;

  constructor(label: string, reason: StepError) {
    super(reason.message, { cause: reason });
    this.label = label;
    this.reason = reason;
  }
}

export class StageRunner {
  readonly #bench: StepBench;
  readonly #plan: BuildPlan;
  /** By `baseKey`. */
  readonly #bases: ReadonlyMap<string, ImageRecord>;
  readonly #stages = new Map<number, StageState>();
  #usedDiskBytes = 0;

  constructor(bench: StepBench, plan: BuildPlan, bases: ReadonlyMap<string, ImageRecord>) {
    this.#bench = bench;
    this.#plan = plan;
    this.#bases = bases;
  }

  async run(): Promise<StageState> {
    const state = await this.#runStage(this.#plan.last);
    // Stages that were not needed after all, because what was copied from them was found.
    for (const { step, state: at } of this.#bench.journal.info.steps) {
      if (at === "waiting" && /^\d+$/.test(step)) this.#bench.journal.updateStep(step, { state: "cached" });
    }
    return state;
  }

  async #stage(index: number): Promise<StageState> {
    const known = this.#stages.get(index);
    if (known !== undefined) return known;
    const stage = this.#plan.stages[index];
    if (stage === undefined) throw new HoldfastError("engine_fault", `stage ${index} was not planned`);
    const state = await this.#runStage(stage);
    this.#stages.set(index, state);
    return state;
  }

  async #stateOf(base: RecipeBase): Promise<StageState> {
    if (base.kind === "stage") return { ...(await this.#stage(base.index)), cmdIsOwn: false };
    const record = this.#bases.get(baseKey(base));
    if (record === undefined) throw new HoldfastError("engine_fault", `the base ${baseKey(base)} was not resolved`);
    return { ...configOnBase(record), layers: await this.#stackOf(record), isFresh: false };
  }

  /** What a snapshot holds has to be made fit to stand on; once for all builds. */
  async #stackOf(record: ImageRecord): Promise<LayerId[]> {
    if (record.disk === null) return [...record.layers];
    const { context, journal } = this.#bench;
    const { engine, store } = context;
    const digest = digestOfText(`what ${record.disk} holds, to stand on`);
    const known = this.#cached(digest);
    if (known !== undefined) return [known, ...record.layers];
    const id = createLayerId();
    claimLayer(store.directory, journal.id, id);
    const layer = await engine.layers.toStandOn(record.disk, id);
    if (layer !== id) return [layer, ...record.layers];
    const sizeBytes = await engine.layers.sizeBytes(id);
    const createdAt = new Date().toISOString();
    store.putLayer({ version: 1, id, createdAt, diffId: null, sizeBytes, from: `snapshot ${record.id}` });
    store.cacheStep(ownDigest(digest, journal.info.owner), id);
    return [id, ...record.layers];
  }

  async #runStage({ base, steps }: PlannedStage): Promise<StageState> {
    let state = await this.#stateOf(base);
    for (const planned of steps) {
      const footing = footingOf(planned, state);
      const layer: StepLayer | undefined = writesFiles(planned.step)
        ? await this.#layerOf(planned, state, footing)
        : undefined;
      if (layer === undefined) this.#note(planned, { state: "done" });
      state = {
        ...applyStep(state, planned.step),
        isFresh: state.isFresh || layer?.cached === false,
        // A layer with nothing in it would only make every path longer.
        layers: layer === undefined || layer.isEmpty ? state.layers : [layer.id, ...footing.below],
      };
    }
    return state;
  }

  async #layerOf(planned: PlannedStep, state: StageState, footing: Footing): Promise<StepLayer> {
    const { context, journal } = this.#bench;
    const found = state.isFresh || planned.forced ? undefined : this.#cached(footing.chain);
    if (found !== undefined) {
      journal.log(planned.label, "info", `${planned.title} (cached)`);
      this.#note(planned, { state: "cached" });
      this.#usedDiskBytes += (context.store.layer(found)?.sizeBytes ?? 0) - this.#topBytes(footing);
      return { id: found, cached: true, isEmpty: this.#isEmpty(found) };
    }
    const made = await this.#run(planned, state, footing);
    this.#usedDiskBytes += made.sizeBytes - this.#topBytes(footing);
    context.store.putLayer({
      version: 1,
      id: made.layer,
      createdAt: new Date().toISOString(),
      diffId: null,
      sizeBytes: made.sizeBytes,
      from: planned.title,
    });
    context.store.cacheStep(ownDigest(footing.chain, journal.info.owner), made.layer);
    return { id: made.layer, cached: false, isEmpty: this.#isEmpty(made.layer) };
  }

  #topBytes({ top }: Footing): number {
    return top === undefined ? 0 : (this.#bench.context.store.layer(top)?.sizeBytes ?? 0);
  }

  #cached(chain: Digest): LayerId | undefined {
    const { context, journal } = this.#bench;
    // Nobody gets what another key has made, and everybody what the operator has.
    for (const owner of new Set([journal.info.owner, null])) {
      const layer = context.store.cachedStep(ownDigest(chain, owner));
      if (layer === undefined || !claimLayer(context.store.directory, journal.id, layer)) continue;
      if (context.engine.layers.has(layer)) return layer;
    }
    return undefined;
  }

  #isEmpty(layer: LayerId): boolean {
    return readdirSync(this.#bench.context.engine.layers.path(layer)).length === 0;
  }

  async #run(planned: PlannedStep, state: StageState, footing: Footing): Promise<NewLayer> {
    const { journal, settings, signal } = this.#bench;
    const { label, title } = planned;
    // Before this one's own sandbox is made: what is copied from may have to be built first.
    if (planned.step.kind === "copy-from") await this.#stateOf(planned.step.source);
    const began = Date.now();
    journal.log(label, "info", title);
    this.#note(planned, { state: "running", startedAt: new Date(began).toISOString() });
    let memoryBytes = settings.memoryBytes;
    for (let tries = 1; ; tries++) {
      try {
        const made = await this.#attempt(planned, state, { footing, memoryBytes });
        const ownBytes = Math.max(0, made.sizeBytes - this.#topBytes(footing));
        journal.log(label, "info", `done in ${formatDuration(Date.now() - began)}, ${formatBytes(ownBytes)}`);
        this.#note(planned, { state: "done", memoryPeakBytes: made.memoryPeakBytes });
        return made;
      } catch (reason) {
        signal.throwIfAborted();
        const failure = stepErrorFrom(reason, this.#failing(planned));
        const next = nextMemorySize(memoryBytes, settings.mostMemoryBytes);
        const isOom = failure.facts.cause?.kind === "out_of_memory" && failure.facts.limitBytes !== null;
        if (isOom && settings.retryOnOom && tries === 1 && next !== undefined) {
          journal.log(label, "info", `${failure.message}; trying it once more with ${formatBytes(next)}`);
          memoryBytes = next;
          continue;
        }
        journal.failStep(label, failure.facts.peakBytes);
        throw new FailedStep(label, failure);
      }
    }
  }

  async #attempt(
    planned: PlannedStep,
    state: StageState,
    { footing, memoryBytes }: { readonly footing: Footing; readonly memoryBytes: number },
  ): Promise<NewLayer> {
    const bench = this.#bench;
    const { settings } = bench;
    const leftBytes = settings.diskBytes - this.#usedDiskBytes;
    const failing = this.#failing(planned);
    if (leftBytes <= 0) {
      const usedBytes = this.#usedDiskBytes;
      throw outOfDisk({ kind: "out_of_disk", limitBytes: settings.diskBytes, usedBytes }, failing);
    }
    const own: BuildSandbox = {
      layers: footing.below,
      config: state.config,
      memoryBytes,
      memoryStartBytes: Math.min(settings.memoryStartBytes, memoryBytes),
      disk: footing.top,
      diskBytes: leftBytes + this.#topBytes(footing),
    };
    return withNewLayer(bench, own, (sandbox) =>
      runStep(
        {
          sandbox,
          config: state.config,
          blobs: bench.context.store.blobs,
          run: {
            signal: bench.signal,
            endsAtMs: bench.endsAtMs,
            onLine: (stream, text) => bench.journal.log(planned.label, stream, text),
          },
          failing,
          onInfo: (text) => bench.journal.log(planned.label, "info", text),
          onEnding: ({ incidents }) => {
            for (const incident of incidents) {
              // What gives a step more is not what gives a sandbox more.
              const text = describeIncident(incident, BUILDER_MEMORY.flag);
              bench.journal.log(planned.label, "info", `warning: ${text}`);
            }
          },
          withSource: async <T>(source: RecipeBase, work: (from: Sandbox) => Promise<T>) => {
            const { config, layers } = await this.#stateOf(source);
            return withSandbox(bench, { layers, config, ...SOURCE }, work);
          },
        },
        planned.step,
      ),
    );
  }

  #failing({ label, title }: PlannedStep): FailingStep {
    return { what: `step ${label} (${title})`, settings: this.#bench.settings, memory: BUILDER_MEMORY };
  }

  #note({ label }: PlannedStep, change: Partial<BuildStepStatus> & Pick<BuildStepStatus, "state">): void {
    const now = new Date().toISOString();
    const begins = change.state === "running";
    const known = this.#bench.journal.info.steps.find(({ step }) => step === label)?.startedAt;
    this.#bench.journal.updateStep(label, {
      ...change,
      startedAt: known ?? now,
      ...(begins ? {} : { endedAt: now }),
    });
  }
}

function footingOf({ chain }: PlannedStep, { layers }: StageState): Footing {
  const [top, ...below] = layers;
  if (top === undefined || layers.length < DEEPEST) return { below: layers, top: undefined, chain };
  return { below, top, chain: digestOfText(`${chain} in the place of ${top}`) };
}

function runStep(job: StepJob, step: RecipeStep): Promise<void> {
  switch (step.kind) {
    case "run":
    case "exec":
    case "apt":
    case "pip":
    case "npm":
      return runProgramStep(job, step);
    case "workdir":
      return runWorkdirStep(job, step);
    case "user":
      return runUserStep(job, step);
    case "copy":
      return runCopyStep(job, step);
    case "copy-archive":
      return runCopyArchiveStep(job, step);
    case "copy-from":
      return runCopyFromStep(job, step);
    case "env":
    case "entrypoint":
    case "cmd":
    case "expose":
    case "label":
      return Promise.resolve();
  }
}

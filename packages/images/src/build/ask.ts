/** One who wants an image: finds it, joins whoever is making it, or makes it. */
import { setTimeout as sleep } from "node:timers/promises";
import { linkSignals } from "@holdfast/engine";
import { HoldfastError, invalidArgument, printable } from "@holdfast/protocol";
import { baseKey, type Digest, externalBases } from "@holdfast/recipe";
import type { BaseResolver } from "../context.js";
import type { AuthFor } from "../registry/credentials.js";
import { claimImage, releaseClaims } from "../store/claims.js";
import { createBuildId, createImageId } from "../store/ids.js";
import { uniqueName } from "../store/process-tag.js";
import { putNamed } from "../store/put-named.js";
import { layersOf } from "../store/records.js";
import type { Build, BuildFailure, BuildId, BuildInfo, BuildLogEntry, ImageRecord } from "../types.js";
import { hasEnded, type StoredBuild } from "./build-files.js";
import type { BuildOrder } from "./build-order.js";
import { buildError, imageOf, readBuildLog, waitForEnd, withFollowed } from "./build-reader.js";
import { buryBuild } from "./bury.js";
import { hasNoLess, wouldHelp } from "./compare-settings.js";
import { hasLimits, imagesOf } from "./images-of.js";
import { Journal } from "./journal.js";
import { digestOfText } from "./own-digest.js";
import { BASE_STEP, type BuildPlan, initialSteps, planBuild } from "./plan.js";
import { startWork, type WorkParts } from "./work.js";

/** Between two looks when somebody else has been quicker, and is not done yet. */
const AGAIN_MS = 20;

export class Ask implements Build {
  readonly id: BuildId;
  readonly image: Promise<ImageRecord>;
  readonly #parts: WorkParts;
  readonly #resolver: BaseResolver;
  readonly #order: BuildOrder;
  /** Not in the order, which is written down. */
  readonly #authFor: AuthFor | undefined;
  readonly #abort = new AbortController();
  readonly #signal: AbortSignal;
  #journal: Journal | undefined;
  #workId: BuildId | undefined;
  /** While it is not written down. */
  #info: BuildInfo;
  #entries: BuildLogEntry[] = [];

  constructor(
    parts: WorkParts,
    resolver: BaseResolver,
    { order, authFor }: { readonly order: BuildOrder; readonly authFor: AuthFor | undefined },
  ) {
    this.#parts = parts;
    this.#resolver = resolver;
    this.#order = order;
    this.#authFor = authFor;
    this.id = order.id ?? createBuildId();
    const { signal, unlink } = linkSignals([this.#abort.signal, parts.closing]);
    this.#signal = signal;
    this.#info = {
      id: this.id,
      owner: order.owner,
      state: "building",
      digest: null,
      names: order.names,
      steps: initialSteps(order),
      createdAt: new Date().toISOString(),
      startedAt: null,
      endedAt: null,
      imageId: null,
      failure: null,
      cached: false,
    };
    // A promised id can be asked for from the first moment on, and after a restart.
    if (order.id !== undefined) this.#written();
    this.image = this.#run().finally(unlink);
    // Whoever only looks at the log does not have to look at this.
    this.image.catch(() => undefined);
  }

  info(): BuildInfo {
    const journal = this.#journal;
    if (journal === undefined) return this.#info;
    return withFollowed(this.#parts.files, journal.info, journal.follows);
  }

  async *log(options: { readonly from?: number; readonly signal?: AbortSignal } = {}): AsyncGenerator<BuildLogEntry> {
    const { files } = this.#parts;
    const { from = 0, signal } = options;
    while (this.#journal === undefined && !hasEnded(this.#info)) {
      if (signal?.aborted === true) return;
      await files.wakes.changed(this.id, files.wakes.version(this.id), { atMostMs: 1000, signal });
    }
    if (this.#journal === undefined) yield* this.#entries.slice(from);
    else yield* readBuildLog(files, this.id, { from, signal });
  }

  async cancel(by: string): Promise<void> {
    const { files, works } = this.#parts;
    this.#abort.abort(new HoldfastError("canceled", `canceled by ${printable(by)}`));
    await this.image.catch(() => undefined);
    const workId = this.#workId;
    if (workId !== undefined && !files.hasAskers(workId)) await works.get(workId);
  }

  async #run(): Promise<ImageRecord> {
    try {
      const record = await this.#find();
      this.#end({ state: "ready", imageId: record.id });
      return record;
    } catch (reason) {
      const error = HoldfastError.from(reason);
      if (this.#signal.aborted || error.code === "canceled") {
        this.#end({ state: "canceled" });
        throw error.code === "canceled" ? error : HoldfastError.from(this.#signal.reason, "canceled");
      }
      if (error.code === "build_failed") {
        this.#end({ state: "failed", failure: error.details as unknown as BuildFailure });
        throw error;
      }
      const failure = this.#ownFailure(error);
      this.#end({ state: "failed", failure });
      throw buildError({ ...this.#info, failure });
    }
  }

  async #find(): Promise<ImageRecord> {
    const { files, context } = this.#parts;
    const bases = await this.#resolveBases();
    const digests = Object.fromEntries([...bases].map(([key, { digest }]) => [key, digest]));
    const plan = await planBuild(this.#order, digests);
    this.#update({ digest: plan.digest });
    let place = plan.digest;
    for (;;) {
      this.#signal.throwIfAborted();
      const found = this.#existing(plan);
      if (found !== undefined && this.#order.forceFrom === undefined && this.#fits(found)) return this.#take(found);
      const other = files.buildOfHash(place);
      if (other === undefined) {
        const journal = this.#claim(place);
        if (journal === undefined) {
          await sleep(AGAIN_MS);
          continue;
        }
        const job = {
          journal,
          order: this.#order,
          plan,
          place,
          bases,
          found: this.#order.forceFrom === undefined ? found : undefined,
        };
        const ended = await this.#follow(journal.id, () => startWork(this.#parts, job));
        // A full disk keeps the end of our own work from being written, but not from being known.
        return this.#ordered(this.#madeBy(ended === "gone" && journal.hasEnded ? journal.stored : ended));
      } else if (!files.hasLease(other)) {
        if (!(await buryBuild(context, files, other))) await sleep(AGAIN_MS);
      } else if (place === plan.digest && !this.#isAsGood(other)) {
        // Beside it: whoever holds a content with a build that nobody else wants must not keep others from it.
        place = digestOfText(`${plan.digest} for ${this.#order.owner ?? "the operator"}`);
      } else {
        const record = await this.#join(other);
        if (record !== undefined) return record;
      }
    }
  }

  async #resolveBases(): Promise<Map<string, ImageRecord>> {
    const { recipe, owner } = this.#order;
    const bases = new Map<string, ImageRecord>();
    this.#step(BASE_STEP, { state: "running", startedAt: new Date().toISOString() });
    for (const base of externalBases(recipe)) {
      const onLine = (text: string): void => this.#log(text);
      const resolving = this.#resolver.resolve(base, {
        owner,
        onLine,
        signal: this.#signal,
        authFor: this.#authFor,
      });
      const record = await resolving.catch((error: unknown) => {
        this.#step(BASE_STEP, { state: "failed", endedAt: new Date().toISOString() });
        throw error;
      });
      this.#signal.throwIfAborted();
      if (record.below !== null) {
        throw new HoldfastError(
          "image_invalid",
          `${record.id} lies on files of this host, which no image can be built on`,
        );
      }
      bases.set(baseKey(base), record);
    }
    this.#step(BASE_STEP, { state: "done", endedAt: new Date().toISOString() });
    return bases;
  }

  /** Of this content, for this owner, whole. */
  #existing({ digest }: BuildPlan): ImageRecord | undefined {
    const { store, engine } = this.#parts.context;
    const { owner, limits } = this.#order;
    const whole = imagesOf(store, { digest, owner }).filter((record) =>
      layersOf(record).every((layer) => engine.layers.has(layer)),
    );
    const fitting = whole.filter((record) => this.#fits(record));
    const best = fitting.length > 0 ? fitting : whole;
    return best.find((record) => hasLimits(record, limits)) ?? best[0];
  }

  #fits({ floor }: ImageRecord): boolean {
    const { floorIsAsked, floorBytes } = this.#order.settings;
    if (floor === null) return false;
    return floorIsAsked ? floor.memoryBytes === floorBytes : floor.memoryBytes <= floorBytes;
  }

  #take(record: ImageRecord): ImageRecord {
    const text = `the image is there: ${record.id}`;
    // Most asks end here. One that has said nothing yet leaves nothing on the disk.
    if (this.#journal !== undefined) this.#log(text);
    else this.#entries = [{ seq: 0, at: new Date().toISOString(), step: BASE_STEP, stream: "info", text }];
    for (const { step, state } of this.info().steps) if (state === "waiting") this.#step(step, { state: "cached" });
    this.#update({ cached: true });
    return this.#ordered(record);
  }

  #named(record: ImageRecord): ImageRecord {
    for (const name of this.#order.names) this.#parts.context.store.setName(name, record.id);
    return record;
  }

  /** Makes it ours to build; undefined if somebody else has been quicker. */
  #claim(place: Digest): Journal | undefined {
    const own = this.#written();
    // A log that goes on with another build's cannot come back to its own.
    const journal = own.follows.length === 0 ? own : this.#create({ ...own.info, id: createBuildId() });
    if (this.#parts.files.claimHash(place, journal.id)) return journal;
    if (journal !== own) {
      journal.end({ state: "canceled" });
      this.#parts.files.forget(journal.id);
    }
    return undefined;
  }

  /** What another key's build was given less of may show in what it makes. */
  #isAsGood(other: BuildId): boolean {
    const { owner, settings } = this.#order;
    const stored = this.#parts.files.read(other);
    if (stored === undefined || [owner, null].includes(stored.info.owner)) return true;
    return hasNoLess(stored.settings, settings);
  }

  /** Undefined if there is still something to do after it. */
  async #join(other: BuildId): Promise<ImageRecord | undefined> {
    const { settings, forceFrom } = this.#order;
    const stored = this.#parts.files.read(other);
    if (forceFrom !== undefined && !(typeof stored?.forceFrom === "number" && stored.forceFrom <= forceFrom)) {
      this.#log(`waiting for the end of ${other}, which builds the same from what is known`);
      await waitForEnd(this.#parts.files, other, this.#signal);
      return undefined;
    }
    const ended = await this.#follow(other);
    if (ended === "gone" || ended.info.state === "canceled") return undefined;
    const { state, failure } = ended.info;
    if (failure?.cause?.kind === "lost") return undefined;
    if (state === "failed" && wouldHelp(settings, { settings: ended.settings, failure })) return undefined;
    const record = this.#madeBy(ended);
    return this.#fits(record) ? this.#ordered(record) : undefined;
  }

  async #follow(id: BuildId, begin: () => void = () => {}): Promise<StoredBuild | "gone"> {
    const { files } = this.#parts;
    const leave = files.ask(id);
    if (leave === undefined) return "gone";
    try {
      this.#workId = id;
      this.#written().follow(id);
      begin();
      return await waitForEnd(files, id, this.#signal);
    } finally {
      leave();
    }
  }

  #madeBy(ended: StoredBuild | "gone"): ImageRecord {
    if (ended === "gone") throw new HoldfastError("engine_fault", "the build's files are gone");
    if (ended.info.state !== "ready") throw buildError(ended.info);
    return imageOf(this.#parts.context.store, ended.info);
  }

  /** Another owner's, or one with other limits, of the very same content: it becomes one of their own, on the same layers. */
  #ordered(made: ImageRecord): ImageRecord {
    const { store, engine } = this.#parts.context;
    const { owner, limits, names } = this.#order;
    if ((made.owner === null || made.owner === owner) && hasLimits(made, limits)) return this.#named(made);
    const holder = `same-${uniqueName()}`;
    try {
      claimImage({ directory: store.directory, layers: engine.layers, holder, record: made });
      const createdAt = new Date().toISOString();
      const buildId = this.#journal === undefined ? made.buildId : this.id;
      const record: ImageRecord = { ...made, id: createImageId(), owner, limits, createdAt, buildId };
      putNamed(store, record, names);
      return record;
    } finally {
      releaseClaims(store.directory, holder);
    }
  }

  #ownFailure(error: HoldfastError): BuildFailure {
    return {
      step: BASE_STEP,
      message: error.message,
      hint: error.hint ?? null,
      cause: null,
      limitBytes: null,
      peakBytes: null,
      suggestedMemoryMb: null,
      tail: this.#journal?.tailOf(BASE_STEP) ?? [],
    };
  }

  #written(): Journal {
    if (this.#journal === undefined) {
      this.#journal = this.#create(this.#info);
      this.#journal.onCancel((by) => void this.cancel(by));
      this.#parts.files.wakes.wake(this.id);
    }
    return this.#journal;
  }

  #create(info: BuildInfo): Journal {
    const journal = Journal.create(this.#parts.files, info, this.#order);
    if (journal === undefined) throw invalidArgument("id", info.id, "the id of no other build");
    return journal;
  }

  #log(text: string): void {
    this.#written().log(BASE_STEP, "info", text);
  }

  #update(change: Partial<BuildInfo>): void {
    this.#info = { ...this.#info, ...change };
    this.#journal?.update(change);
  }

  #step(step: string, change: Partial<BuildInfo["steps"][number]>): void {
    const steps = this.info().steps.map((status) => (status.step === step ? { ...status, ...change } : status));
    this.#update({ steps });
  }

  #end(change: Partial<BuildInfo> & Pick<BuildInfo, "state">): void {
    const { files, works } = this.#parts;
    this.#info = { ...this.#info, ...change, endedAt: new Date().toISOString() };
    // Where the work is written down in the same place, it ends when the work does.
    if (!works.has(this.id)) this.#journal?.end(change);
    files.wakes.wake(this.id);
  }
}

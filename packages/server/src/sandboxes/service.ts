/** All sandboxes of this server. What one of them goes through is in sandbox-life.ts; here they are found and counted. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Sandbox } from "@holdfast/engine";
import { type ImageId, type ImageName, type TakenSnapshot, takeSnapshot } from "@holdfast/images";
import {
  ceilingBytesOf,
  HoldfastError,
  type HostInfo,
  type Postmortem,
  parseSandboxId,
  type ResizeLimits,
  type SandboxEnding,
  type SandboxId,
  type SandboxPressure,
} from "@holdfast/protocol";
import { waitForRoomMs } from "../config/budget-settings.js";
import { countLives, type SandboxCounts } from "../metrics/sandbox-gauges.js";
import { PressureWatch } from "../pressure/pressure-watch.js";
import type { RefusedWork } from "../pressure/refusals.js";
import { pressureSettings } from "../pressure/settings.js";
import type { CommandRow, EventRow, NetworkSettings, SampleRow, SandboxQuery, SandboxRow } from "../store/store.js";
import { checkAgainstHost, checkTimeout } from "./check-request.js";
import { Creations } from "./creations.js";
import { EventLog } from "./event-log.js";
import { hostInfo } from "./host-info.js";
import { forgetOldSandboxes, removeStrayOffsets } from "./housekeeping.js";
import { KeyBudget } from "./key-budget.js";
import { OPERATOR_KEY_ID } from "./key-id.js";
import { lifeEvents } from "./life-events.js";
import type { LifeParts } from "./life-parts.js";
import { Newcomers } from "./newcomers.js";
import { endedError, endingWithoutSandbox } from "./postmortem.js";
import { type Recovery, recover } from "./recovery.js";
import { SampleReader } from "./sample-reader.js";
import { type Look, Sampler } from "./sampler.js";
import { SandboxLife } from "./sandbox-life.js";
import type { ServiceParts } from "./service-parts.js";
import { Sources } from "./sources.js";
import { startCommandIn } from "./start-command.js";
import { discardLater } from "./strays.js";
import { SandboxTokens } from "./tokens.js";
import type { Caller, CreateRequest, Forked, LiveSandbox, Opened, Sandboxes } from "./types.js";

const MAX_COMMANDS = 1000;

/** The operator sees everybody's. */
const filterOf = (caller: Caller): { keyId?: string } => (caller.kind === "operator" ? {} : { keyId: caller.keyId });

function notFound(id: string): HoldfastError {
  return new HoldfastError("sandbox_not_found", `Sandbox "${id}" doesn't exist or you don't have access to it`);
}

export class SandboxService implements Sandboxes {
  readonly sources: Sources;
  readonly #parts: ServiceParts;
  readonly #events: EventLog;
  readonly #tokens: SandboxTokens;
  readonly #budget = new KeyBudget();
  readonly #sampler: Sampler;
  readonly #samples: SampleReader;
  readonly #pressure: PressureWatch;
  readonly #lifeParts: LifeParts;
  /** Running and paused ones. The ended are in the store only. */
  readonly #lives = new Map<SandboxId, SandboxLife>();
  readonly #creations: Creations;
  readonly #newcomers: Newcomers;
  readonly #closing = new AbortController();
  #stopForgetting: () => void = () => {};
  #forgetStrays: () => void = () => {};

  private constructor(parts: ServiceParts, tokens: SandboxTokens, directory: string) {
    this.#parts = parts;
    this.#tokens = tokens;
    this.sources = new Sources(parts.config, parts.images);
    this.#events = new EventLog(parts.store, parts.metrics);
    this.#pressure = new PressureWatch({
      ...parts,
      settings: pressureSettings(parts.config),
      observe: parts.onPressure,
      lives: () => this.#lives.values(),
      find: (id) => this.#lives.get(id),
      record: (id, event) => this.#events.apply(id, {}, event),
    });
    this.#lifeParts = {
      engine: parts.engine,
      store: parts.store,
      events: this.#events,
      log: parts.log,
      directory,
      waitForRoomMs: waitForRoomMs(parts.config),
      creating: (how, work) => parts.metrics.creating(how, work),
      metrics: parts.metrics,
      admitCommand: (id) => this.#pressure.admitCommand(id),
      startImage: async (live) => {
        const start = this.sources.startOf(live.row.imageId);
        if (start !== null) await startCommandIn(live, start, this.#closing.signal);
      },
    };
    this.#creations = new Creations({
      engine: parts.engine,
      store: parts.store,
      budget: this.#budget,
      metrics: parts.metrics,
      keep: (row) => this.#keep(row, { counted: true }),
      letGo: (id) => this.#lives.delete(id),
      find: (id) => this.#find(id),
      onWaiting: async (row, waiting) => {
        await this.#events.apply(row.id, {}, lifeEvents.waiting(waiting));
      },
    });
    this.#newcomers = new Newcomers({
      ...parts,
      sources: this.sources,
      creations: this.#creations,
      requireCalm: () => this.#pressure.requireCalm("create"),
      findAlive: (caller, id) => this.findAlive(caller, id),
      lifeOf: (caller, id) => this.#life(caller, id),
    });
    this.#sampler = new Sampler({
      store: parts.store,
      log: parts.log,
      sandboxes: () => this.#engineSandboxes(),
      everySeconds: parts.config.sampleSeconds,
      keepHours: parts.config.sampleRetentionHours,
    });
    this.#samples = new SampleReader({
      store: parts.store,
      sampler: this.#sampler,
      sandboxOf: (id) => this.#lives.get(id)?.sandbox,
    });
  }

  /** Takes over what an earlier server left, then is ready. */
  static async open(
    parts: ServiceParts,
    options: { readonly directory: string },
  ): Promise<{ service: SandboxService; recovery: Recovery }> {
    const directory = join(options.directory, "delivered");
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const service = new SandboxService(parts, await SandboxTokens.open(parts.store), directory);
    const recovery = await recover(parts, (row) => service.#keep(row, { counted: false }));
    parts.metrics.orphansReaped(recovery.orphans);
    removeStrayOffsets(directory, (id) => service.#lives.has(id));
    service.#forgetStrays = discardLater(parts, recovery.strays);
    service.#sampler.start();
    service.#pressure.start();
    service.#stopForgetting = forgetOldSandboxes(parts);
    return { service, recovery };
  }

  /** Lets go of everything; sandboxes run on for the next server. */
  async close(): Promise<void> {
    this.#stopForgetting();
    this.#forgetStrays();
    this.#closing.abort(new HoldfastError("server_stopping", "the server is being stopped"));
    await this.#sampler.stop();
    await this.#creations.settled();
    await this.#pressure.stop();
    await Promise.all([...this.#lives.values()].map((life) => life.release()));
  }

  async create(
    caller: Caller,
    request: CreateRequest,
    options: { idempotencyToken?: string | undefined; signal?: AbortSignal | undefined } = {},
  ): Promise<SandboxRow> {
    return this.#newcomers.create(caller, request, options);
  }

  async snapshot(caller: Caller, id: string, options: { names?: readonly ImageName[] }): Promise<TakenSnapshot> {
    const life = await this.#life(caller, id);
    const { context, store } = this.#parts.images;
    const { imageId, keyId } = life.row;
    const parent = imageId === null ? undefined : store.get(imageId as ImageId);
    // Whoever takes it, the files in it are of whoever has the sandbox: the operator's images are everybody's.
    const owner = keyId === OPERATOR_KEY_ID ? (parent?.owner ?? null) : keyId;
    const names = options.names?.map((name) => ({ ...name, owner }));
    return life.withSandbox(async (sandbox) => {
      const taken = await takeSnapshot(context, sandbox, { owner, names, parent });
      const { method, sizeBytes, frozenMs } = taken.report;
      const data = { imageId: taken.image.id, holds: taken.holds, method, sizeBytes, frozenMs };
      return { result: taken, event: lifeEvents.snapshotted(`Its files were kept as image ${taken.image.id}.`, data) };
    });
  }

  async fork(caller: Caller, id: string, options: { count: number; timeoutMs?: number | undefined }): Promise<Forked> {
    return this.#newcomers.fork(caller, id, options);
  }

  async find(caller: Caller, id: string): Promise<SandboxRow> {
    const row = await this.#find(id);
    if (row === undefined || (caller.kind === "key" && row.keyId !== caller.keyId)) throw notFound(id);
    return row;
  }

  async findAlive(caller: Caller, id: string): Promise<SandboxRow> {
    const row = await this.find(caller, id);
    if (row.status !== "ended") return row;
    throw endedError(row);
  }

  list(caller: Caller, query: Omit<SandboxQuery, "keyId">): Promise<SandboxRow[]> {
    return this.#parts.store.sandboxes.list({ ...query, ...filterOf(caller) });
  }

  async countRunning(caller: Caller): Promise<number> {
    const lives = [...this.#lives.values()].map((life) => life.row);
    return lives.filter((row) => row.status === "running" && (caller.kind === "operator" || row.keyId === caller.keyId))
      .length;
  }

  async kill(caller: Caller, id: string, by: string): Promise<SandboxEnding> {
    const row = await this.findAlive(caller, id);
    // One that is still waiting for room has nothing to end but the waiting.
    if (row.status === "creating" && (await this.#creations.cancel(row.id))) {
      return endingWithoutSandbox(row, { kind: "killed", by });
    }
    const life = await this.#life(caller, id);
    return this.#parts.metrics.killing(() => life.kill(by));
  }

  async setTimeout(
    caller: Caller,
    id: string,
    timeoutMs: number,
    options: { extendOnly?: boolean } = {},
  ): Promise<SandboxRow> {
    checkTimeout(timeoutMs, this.#parts.config);
    return (await this.#life(caller, id)).setTimeout(timeoutMs, { extendOnly: options.extendOnly ?? false });
  }

  async pause(caller: Caller, id: string, options: { memory: boolean }): Promise<SandboxRow> {
    return (await this.#life(caller, id)).pause({ memory: options.memory, why: "as asked" });
  }

  async resume(
    caller: Caller,
    id: string,
    options: { timeoutMs?: number | undefined; memory?: boolean | undefined },
  ): Promise<{ row: SandboxRow; resumed: boolean }> {
    checkTimeout(options.timeoutMs ?? 0, this.#parts.config);
    const life = await this.#life(caller, id);
    if (life.row.status === "paused") this.#pressure.requireCalm("resume");
    await this.#pressure.use(life);
    return life.resume(options);
  }

  async resize(caller: Caller, id: string, limits: ResizeLimits): Promise<SandboxRow> {
    const life = await this.#life(caller, id);
    await this.#pressure.use(life);
    await checkAgainstHost(limits, this.#parts.engine);
    const { keyId } = life.row;
    return life.resize(limits, (grownBytes) => this.#budget.change(caller, keyId, grownBytes));
  }

  async setNetwork(caller: Caller, id: string, network: NetworkSettings): Promise<SandboxRow> {
    return (await this.#life(caller, id)).setNetwork(network);
  }

  async samples(
    caller: Caller,
    id: string,
    range: { from?: Date | undefined; to?: Date | undefined },
  ): Promise<SampleRow[]> {
    return this.#samples.list((await this.findAlive(caller, id)).id, range);
  }

  async latestSamples(caller: Caller, ids: readonly string[]): Promise<SampleRow[]> {
    const found = await Promise.all(ids.map((id) => this.find(caller, id).catch(() => undefined)));
    return this.#samples.latest(found.flatMap((row) => (row === undefined ? [] : [row.id])));
  }

  async look(caller: Caller, id: string): Promise<Look> {
    const { sandbox } = await this.#life(caller, id);
    if (sandbox === undefined) {
      throw new HoldfastError("sandbox_paused", `sandbox ${id} is paused, and only its files are kept`, {
        hint: "Resume it first.",
      });
    }
    return this.#sampler.look(sandbox);
  }

  async events(
    caller: Caller,
    query: {
      sandboxId?: string | undefined;
      after?: number | undefined;
      newestFirst?: boolean | undefined;
      limit: number;
    },
  ): Promise<EventRow[]> {
    const sandboxId = await this.#eventsOf(caller, query.sandboxId);
    return this.#parts.store.events.list({ ...query, sandboxId, ...filterOf(caller) });
  }

  async *followEvents(
    caller: Caller,
    query: { sandboxId?: string | undefined; after: number | undefined },
    signal: AbortSignal,
  ): AsyncGenerator<EventRow> {
    const sandboxId = await this.#eventsOf(caller, query.sandboxId);
    const after = query.after ?? (await this.#parts.store.events.lastSeq());
    yield* this.#events.follow({ sandboxId, after, ...filterOf(caller) }, signal);
  }

  async postmortem(caller: Caller, id: string): Promise<Omit<Postmortem, "sandbox" | "events">> {
    const row = await this.find(caller, id);
    const postmortem = row.status === "ended" ? await this.#parts.store.postmortems.find(row.id) : undefined;
    if (postmortem !== undefined) return postmortem;
    throw new HoldfastError("invalid_argument", `sandbox ${id} has not ended: there is no post-mortem of it`, {
      details: { field: "id" },
    });
  }

  async commands(caller: Caller, id: string): Promise<CommandRow[]> {
    return this.#parts.store.commands.list((await this.find(caller, id)).id, { limit: MAX_COMMANDS });
  }

  async command(caller: Caller, id: string, commandId: number): Promise<CommandRow> {
    const row = await this.#parts.store.commands.find((await this.find(caller, id)).id, commandId);
    if (row === undefined)
      throw new HoldfastError("command_not_found", `no command with id ${commandId} in sandbox ${id}`);
    return row;
  }

  async openFor(caller: Caller, id: string): Promise<LiveSandbox> {
    const life = await this.#life(caller, id);
    const opened = await this.#open(life, { wake: true });
    switch (opened.kind) {
      case "running":
        return opened.live;
      case "paused":
        throw new HoldfastError("sandbox_paused", `sandbox ${id} is paused`, { hint: "Resume it first." });
      case "busy":
        throw new HoldfastError("sandbox_busy", `sandbox ${id} is being paused or resumed right now`, {
          hint: "Try again in a moment.",
        });
      case "missing":
        throw endedError(await life.settledRow());
    }
  }

  async open(id: string, options: { wake?: boolean } = {}): Promise<Opened> {
    const life = this.#lives.get(id as SandboxId);
    if (life !== undefined) return this.#open(life, { wake: options.wake ?? true });
    const row = await this.#find(id);
    return { kind: "missing", ending: row?.ending ?? undefined, endedAt: row?.endedAt ?? undefined };
  }

  counts(): SandboxCounts {
    return countLives([...this.#lives.values()], this.#creations.count);
  }

  async #open(life: SandboxLife, options: { readonly wake: boolean }): Promise<Opened> {
    if (options.wake && life.row.status === "paused" && life.row.autoResume) this.#pressure.requireCalm("resume");
    const opened = await life.open(options);
    if (opened.kind === "running") await this.#pressure.use(life, options);
    return opened;
  }

  pressureOf(id: SandboxId): SandboxPressure | null {
    return this.#pressure.pressureOf(id);
  }

  requireCalm(work: RefusedWork): void {
    this.#pressure.requireCalm(work);
  }

  mayWarm(): boolean {
    return this.#pressure.mayWarm();
  }

  host(caller: Caller): Promise<HostInfo> {
    return hostInfo({ ...this.#parts, pressure: this.#pressure.hostView() }, [...this.#lives.values()], caller);
  }

  envdToken(id: SandboxId): string {
    return this.#tokens.envd(id);
  }

  trafficToken(id: SandboxId): string {
    return this.#tokens.traffic(id);
  }

  #keep(row: SandboxRow, options: { readonly counted: boolean }): SandboxLife {
    if (!options.counted) this.#budget.add(row.keyId, ceilingBytesOf(row.limits));
    const life = new SandboxLife(this.#lifeParts, row, (ended) => {
      this.#lives.delete(row.id);
      this.#sampler.forget(row.id);
      this.#pressure.forget(row.id);
      if (ended.row.ending !== null) this.#parts.metrics.sandboxEnded(ended.row.ending);
      this.#budget.free(row.keyId, ceilingBytesOf(ended.row.limits));
    });
    this.#lives.set(row.id, life);
    return life;
  }

  async #find(id: string): Promise<SandboxRow | undefined> {
    let parsed: SandboxId;
    try {
      parsed = parseSandboxId(id);
    } catch {
      // What cannot be an id is nobody's.
      return undefined;
    }
    return (await this.#lives.get(parsed)?.settledRow()) ?? this.#parts.store.sandboxes.find(parsed);
  }

  async #life(caller: Caller, id: string): Promise<SandboxLife> {
    const row = await this.findAlive(caller, id);
    const life = this.#lives.get(row.id);
    if (life === undefined) throw notFound(id);
    return life;
  }

  async #eventsOf(caller: Caller, id: string | undefined): Promise<SandboxId | undefined> {
    return id === undefined ? undefined : (await this.find(caller, id)).id;
  }

  *#engineSandboxes(): Iterable<Sandbox> {
    for (const life of this.#lives.values()) if (life.sandbox !== undefined) yield life.sandbox;
  }
}

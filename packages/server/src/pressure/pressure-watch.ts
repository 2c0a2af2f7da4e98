/**
 * Watches the host and every running sandbox for pressure on memory and processes, with one timer for all, and does what
 * each stage asks for: tells, lets commands wait their turn, cleans up, freezes, refuses. What runs is never harmed by it.
 */
import type { CleanUpReport, Engine } from "@holdfast/engine";
import { HoldfastError, type HostPressure, type SandboxId, type SandboxPressure } from "@holdfast/protocol";
import type { Logger } from "pino";
import type { NewEvent } from "../store/store.js";
import { freezeFor, thawFor, type WatchedLife, whyFreeze } from "./freezer.js";
import { HostWatch } from "./host-watch.js";
import { type ProcessFigures, pressureEvents } from "./pressure-events.js";
import { hostPressure, pidPressure, type Refusal, type RefusedWork } from "./refusals.js";
import { SandboxWatch } from "./sandbox-watch.js";
import type { PressureSettings } from "./settings.js";
import { type PressureHappening, Tally } from "./tally.js";

/** While processes are short, clean-ups follow each other no closer than this. */
const CLEAN_UP_AGAIN_MS = 5000;
/** For whoever would be refused otherwise; each look costs. */
const CLEAN_UP_FOR_ONE_MS = 1000;

export interface PressureParts {
  readonly engine: Engine;
  readonly settings: PressureSettings;
  readonly log: Logger;
  readonly lives: () => Iterable<WatchedLife>;
  readonly find: (id: SandboxId) => WatchedLife | undefined;
  /** Hears of everything that happens: for metrics. */
  readonly observe?: ((happening: PressureHappening) => void) | undefined;
  /** Keeps what happened to a sandbox. */
  readonly record: (id: SandboxId, event: NewEvent) => Promise<unknown>;
}

export class PressureWatch {
  readonly #parts: PressureParts;
  readonly #host: HostWatch;
  readonly #watches = new Map<SandboxId, SandboxWatch>();
  readonly #working = new Set<Promise<void>>();
  readonly #tally: Tally;
  #timer: NodeJS.Timeout | undefined;
  /** Those that have not had their look in this round. */
  #round: WatchedLife[] = [];
  #perTurn = 1;
  #sweptAtMs = performance.now();
  #sweeping = false;

  constructor(parts: PressureParts) {
    this.#parts = parts;
    this.#host = new HostWatch(parts);
    this.#tally = new Tally(parts.observe);
  }

  start(): void {
    this.#timer = setInterval(() => this.#turn(), this.#parts.settings.hostEveryMs);
    this.#timer.unref();
  }

  /** What stands still because of us moves again: nobody would come for it. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    for (const watch of this.#watches.values()) watch.turns.letAllBegin();
    while (this.#working.size > 0) await Promise.all(this.#working);
    this.#thawAll("the server is being stopped");
    while (this.#working.size > 0) await Promise.all(this.#working);
  }

  forget(id: SandboxId): void {
    this.#watches.get(id)?.turns.letAllBegin();
    this.#watches.delete(id);
  }

  /** Whether sandboxes may be made that nobody has asked for yet. */
  mayWarm(): boolean {
    return !this.#host.isMemoryAtLeast("throttle") && !this.#host.isProcessesAtLeast("warn");
  }

  /** Throws while nothing new may be begun on the host. */
  requireCalm(work: RefusedWork): void {
    if (this.#host.isProcessesAtLeast("refuse")) throw this.#shortOfProcesses("host", work, this.#host.processFigures);
    if (this.#host.isMemoryAtLeast("refuse")) throw this.#shortOfMemory("host", work, this.#host);
  }

  /** No stage is left sooner. */
  get retryAfterSeconds(): number {
    const { holdMs, hostEveryMs } = this.#parts.settings;
    return Math.max(1, Math.ceil((holdMs + hostEveryMs) / 1000));
  }

  /** Somebody wants something in it; with `wake: false` it is not known yet whether he may. */
  async use(life: WatchedLife, { wake = true }: { readonly wake?: boolean } = {}): Promise<void> {
    const watch = this.#watchOf(life.row.id);
    watch.usedAtMs = performance.now();
    if (!watch.isFrozen || !wake) return;
    if (await thawFor(life, watch, "it is used")) this.#tally.add("thawed");
  }

  /** Resolves when another command may be started in it, to what is to be called when that has ended. */
  async admitCommand(id: SandboxId): Promise<() => void> {
    this.requireCalm("command");
    const life = this.#parts.find(id);
    const watch = this.#watchOf(id);
    if (life !== undefined) this.#look(life);
    // The stage is left late, so that it does not flutter; whoever asks is told how things are now.
    const isDue = performance.now() - watch.cleanedUpAtMs >= CLEAN_UP_FOR_ONE_MS;
    if (watch.isFullOfProcesses && life !== undefined && isDue) {
      await this.#cleanUp(life, watch);
      this.#look(life);
    }
    if (watch.isFullOfProcesses) throw this.#shortOfProcesses("sandbox", "command", watch.figures);
    // One is let in where none runs: somebody has to be able to make room.
    if (watch.isMemoryAtLeast("refuse") && life?.sandbox?.gauge.isBusy === true) {
      throw this.#shortOfMemory("sandbox", "command", watch);
    }
    if (!this.#isThrottled(watch)) return () => {};
    const end = await watch.turns.take(this.#parts.settings.throttleWaitMs);
    if (end !== undefined) return end;
    const isItsOwn = watch.isMemoryAtLeast("throttle");
    throw this.#shortOfMemory(isItsOwn ? "sandbox" : "host", "command", isItsOwn ? watch : this.#host);
  }

  pressureOf(id: SandboxId): SandboxPressure | null {
    const watch = this.#watches.get(id);
    if (watch === undefined) return this.#parts.find(id) === undefined ? null : CALM;
    return { memory: watch.memoryStage, processes: watch.processes.stage, frozen: watch.isFrozen };
  }

  hostView(): HostPressure {
    const { memory, processes, events } = this.#host.view();
    const counts = { live: 0, zombies: 0, orphans: 0 };
    let frozen = 0;
    for (const watch of this.#watches.values()) {
      counts.live += watch.counts.live;
      counts.zombies += watch.counts.zombies;
      counts.orphans += watch.counts.orphans;
      if (watch.isFrozen) frozen += 1;
    }
    return { memory, processes: { ...processes, ...counts }, frozen, events, totals: this.#tally.totals };
  }

  #shortOfMemory(
    scope: Refusal["scope"],
    work: RefusedWork,
    { memoryStage: stage, memoryPercent: percent }: Pick<HostWatch, "memoryStage" | "memoryPercent">,
  ): HoldfastError {
    this.#tally.refused({ code: "host_pressure", scope, work });
    return hostPressure(scope, { stage, percent, retryAfterSeconds: this.retryAfterSeconds });
  }

  #shortOfProcesses(scope: Refusal["scope"], work: RefusedWork, figures: ProcessFigures): HoldfastError {
    this.#tally.refused({ code: "pid_pressure", scope, work });
    return pidPressure(scope, { ...figures, retryAfterSeconds: this.retryAfterSeconds });
  }

  #isThrottled(watch: SandboxWatch): boolean {
    return this.#host.isMemoryAtLeast("throttle") || watch.isMemoryAtLeast("throttle");
  }

  #watchOf(id: SandboxId): SandboxWatch {
    let watch = this.#watches.get(id);
    if (watch === undefined) {
      watch = new SandboxWatch(this.#parts.settings, performance.now());
      // One that has ended meanwhile leaves nothing.
      if (this.#parts.find(id) !== undefined) this.#watches.set(id, watch);
    }
    return watch;
  }

  #turn(): void {
    try {
      this.#lookAtHost();
      if (this.#round.length === 0) {
        this.#round = [...this.#parts.lives()];
        this.#perTurn = Math.max(1, Math.ceil(this.#round.length / this.#parts.settings.sandboxTurns));
      }
      for (const life of this.#round.splice(0, this.#perTurn)) {
        if (this.#parts.find(life.row.id) === life) this.#look(life);
      }
      const { sweepEveryMs } = this.#parts.settings;
      if (performance.now() - this.#sweptAtMs >= sweepEveryMs) this.#endUnowned();
    } catch (error) {
      this.#parts.log.error({ error: HoldfastError.from(error).message }, "the host could not be watched");
    }
  }

  #lookAtHost(): void {
    const { memory, processes } = this.#host.look(performance.now());
    if (memory !== undefined) {
      this.#tally.crossed("host", "memory", memory);
      if (!this.#host.isMemoryAtLeast("throttle")) this.#letAllBegin();
      if (!this.#host.isMemoryAtLeast("freeze")) this.#thawAll("the host has memory again");
    }
    if (processes === undefined) return;
    this.#tally.crossed("host", "processes", processes);
    if (processes.direction === "up" && processes.passed.includes("alert")) this.#cleanUpHost();
  }

  #letAllBegin(): void {
    for (const watch of this.#watches.values()) if (!this.#isThrottled(watch)) watch.turns.letAllBegin();
  }

  /** What cannot be looked at must keep nobody else from being looked at, and no command from being started. */
  #look(life: WatchedLife): void {
    try {
      this.#lookAt(life);
    } catch (error) {
      const { message } = HoldfastError.from(error);
      this.#parts.log.warn({ sandbox: life.row.id, error: message }, "a sandbox could not be looked at");
    }
  }

  #lookAt(life: WatchedLife): void {
    const { sandbox, row } = life;
    const watch = this.#watchOf(row.id);
    // It was paused meanwhile, which is not our doing.
    if (row.status !== "running") watch.isFrozen = false;
    if (sandbox?.state !== "running") return;
    const nowMs = performance.now();
    const { memory, processes } = watch.look(sandbox.gauge, nowMs);
    if (memory !== undefined) {
      this.#tally.crossed("sandbox", "memory", memory.crossing);
      this.#record(row.id, pressureEvents.memory("It", memory.crossing, memory.reading, watch.source));
      if (!this.#isThrottled(watch)) watch.turns.letAllBegin();
    }
    if (processes !== undefined) {
      this.#tally.crossed("sandbox", "processes", processes.crossing);
      this.#record(row.id, pressureEvents.processes("It", processes.crossing, processes.figures));
    }
    sandbox.gauge.tell(watch.textFor(this.#host.memoryStage));
    const entered = processes?.crossing.direction === "up" && processes.crossing.passed.includes("alert");
    const isDirty = watch.counts.orphans + watch.counts.zombies > 0;
    const isDue = watch.processes.isAtLeast("alert") && nowMs - watch.cleanedUpAtMs >= CLEAN_UP_AGAIN_MS && isDirty;
    if (entered || isDue) this.#work(async () => void (await this.#cleanUp(life, watch)));
    if (this.#host.isMemoryAtLeast("freeze")) this.#freeze(life, watch);
    // The host got better between its turn and ours.
    else if (watch.isFrozen) this.#thaw(life, watch, "the host has memory again");
  }

  #freeze(life: WatchedLife, watch: SandboxWatch): void {
    const { idleMs } = this.#parts.settings;
    const why = () =>
      this.#host.isMemoryAtLeast("freeze") && this.#timer !== undefined
        ? whyFreeze(life, watch, { idleMs, nowMs: performance.now() })
        : undefined;
    if (why() === undefined) return;
    this.#work(async () => {
      if (await freezeFor(life, watch, why)) this.#tally.add("frozen");
    });
  }

  #thaw(life: WatchedLife, watch: SandboxWatch, why: string): void {
    this.#work(async () => {
      if (await thawFor(life, watch, why)) this.#tally.add("thawed");
    });
  }

  #thawAll(why: string): void {
    for (const [id, watch] of this.#watches) {
      const life = watch.isFrozen ? this.#parts.find(id) : undefined;
      if (life !== undefined) this.#thaw(life, watch, why);
    }
  }

  async #cleanUp(life: WatchedLife, watch: SandboxWatch): Promise<CleanUpReport> {
    watch.cleanedUpAtMs = performance.now();
    const { id } = life.row;
    try {
      const report = await life.sandbox?.gauge.cleanUp();
      if (report === undefined) return NOTHING;
      this.#tally.cleanedUp(report);
      const { zombiesReaped, orphansEnded, failed } = report;
      if (zombiesReaped + orphansEnded + failed > 0) this.#record(id, pressureEvents.cleanedUp("It", report));
      return report;
    } catch (error) {
      const { code, message } = HoldfastError.from(error);
      if (code === "sandbox_ended" || code === "sandbox_frozen") return NOTHING;
      this.#tally.add("cleanUpFailures");
      this.#parts.log.warn({ sandbox: id, error: message }, "the processes of a sandbox could not be cleaned up");
      return NOTHING;
    }
  }

  #cleanUpHost(): void {
    this.#endUnowned();
    this.#work(async () => {
      const sum = { zombiesReaped: 0, orphansEnded: 0, failed: 0 };
      for (const life of [...this.#parts.lives()]) {
        const { sandbox } = life;
        if (sandbox?.state !== "running") continue;
        const { zombies, orphans } = sandbox.gauge.countProcesses();
        if (zombies + orphans === 0) continue;
        const report = await this.#cleanUp(life, this.#watchOf(life.row.id));
        sum.zombiesReaped += report.zombiesReaped;
        sum.orphansEnded += report.orphansEnded;
        sum.failed += report.failed;
      }
      this.#host.tell(pressureEvents.cleanedUp("The host", sum));
    });
  }

  #endUnowned(): void {
    this.#sweptAtMs = performance.now();
    if (this.#sweeping) return;
    this.#sweeping = true;
    this.#work(async () => {
      try {
        for (const { id, processes, why } of await this.#parts.engine.endUnowned()) {
          this.#tally.add("unownedEnded", processes);
          const message = `${processes} processes of sandbox ${id} were ended, which belonged to nobody: ${why}.`;
          this.#host.tell({ kind: "unowned_ended", message, data: { sandboxId: id, processes, why } });
        }
      } catch (error) {
        this.#tally.add("cleanUpFailures");
        throw error;
      } finally {
        this.#sweeping = false;
      }
    });
  }

  #record(id: SandboxId, event: NewEvent): void {
    this.#work(async () => {
      // One that is just being removed need not be told of.
      await this.#parts.record(id, event).catch(() => {});
    });
  }

  #work(work: () => Promise<void>): void {
    const working = work()
      .catch((error: unknown) => {
        this.#parts.log.error({ error: HoldfastError.from(error).message }, "something about pressure was not done");
      })
      .finally(() => this.#working.delete(working));
    this.#working.add(working);
  }
}

const CALM: SandboxPressure = { memory: "calm", processes: "calm", frozen: false };
const NOTHING: CleanUpReport = { zombiesReaped: 0, orphansEnded: 0, failed: 0 };

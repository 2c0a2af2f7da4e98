/**
 * Keeps things ready that were asked for before, so that the next who asks gets one at once. What is ready is nobody's: it is
 * given up for whoever needs its room, ended when it is too old, and never given to two.
 *
 * Made one at a time, in the background, while there is room to spare and nobody waits for any.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { formatBytes, HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { Log } from "../../host/log.js";
import { WASTE_CAUSES, type WarmSettings, type WarmStats, type WasteCause } from "../../warm.js";
import { type Amounts, mapAmounts, NOTHING, plus, type Resource } from "../amounts.js";
import { BackOff } from "./back-off.js";
import { Demand } from "./demand.js";
import { targetsOf } from "./targets.js";

/** What was not asked for in this time is not made again. */
const DEMAND_WINDOW_MS = 600_000;
/** Whoever was just served shall have the host to itself for a moment. */
const PAUSE_MS = 100;
const LOOK_AGAIN_MS = 1000;
/** After somebody needed the room of those that were ready, none is made for a while. */
const HOLD_OFF_MS = 10_000;
/** One of a shape that is asked for less than others gives way to theirs, but not at once: they might change places often. */
const LEAST_STAY_MS = 30_000;

export interface WarmThing {
  readonly id: SandboxId;
  readonly amounts: Amounts;
  /** Resolves if it ends by itself. */
  readonly gone: Promise<void>;
  /** Keeps it for us; false if another process has taken it. */
  take(): boolean;
  /** Undoes that. */
  putBack(): boolean;
  /** Whether it could be given to somebody now. */
  isFit(): Promise<boolean>;
  /** Whether what it was made from is still what it would be made from. */
  isCurrent(): boolean;
  held(): { readonly memoryBytes: number; readonly pids: number };
  end(): Promise<void>;
}

interface Entry<T> {
  readonly shape: string;
  readonly thing: T;
  readonly madeAt: number;
}

export interface WarmPoolParts<T, Spec> {
  readonly settings: WarmSettings;
  readonly make: (spec: Spec, signal: AbortSignal) => Promise<T>;
  /** Whether the host could do without what one of these takes. */
  readonly canSpare: (spec: Spec) => boolean;
  readonly log: Log;
  readonly now?: () => number;
}

export class WarmPool<T extends WarmThing, Spec> {
  readonly #parts: WarmPoolParts<T, Spec>;
  readonly #now: () => number;
  readonly #demand = new Demand({ windowMs: DEMAND_WINDOW_MS });
  readonly #backOff = new BackOff();
  readonly #specs = new Map<string, Spec>();
  /** The oldest first. */
  readonly #ready = new Set<Entry<T>>();
  readonly #claimed = new Map<SandboxId, Entry<T>>();
  readonly #ending = new Set<Promise<void>>();
  /** Claims whose outcome is not known yet. */
  readonly #claims = new Set<Promise<T | undefined>>();
  readonly #waste = Object.fromEntries(WASTE_CAUSES.map((cause) => [cause, 0])) as Record<WasteCause, number>;
  #counts = { made: 0, hits: 0, misses: 0, failures: 0 };
  #making: { readonly shape: string; readonly abort: AbortController } | undefined;
  #filling: Promise<void> | undefined;
  #evictedAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(parts: WarmPoolParts<T, Spec>) {
    this.#parts = parts;
    this.#now = parts.now ?? (() => performance.now());
  }

  get isOn(): boolean {
    const { perShape, total } = this.#parts.settings;
    return perShape > 0 && total > 0 && !this.#closed;
  }

  /** Takes one that is ready and fit. From then on it is the caller's, to hand over or to put back. */
  claim(shape: string, spec: Spec): Promise<T | undefined> {
    const claim = this.#claim(shape, spec).finally(() => this.#claims.delete(claim));
    this.#claims.add(claim);
    return claim;
  }

  async #claim(shape: string, spec: Spec): Promise<T | undefined> {
    if (!this.isOn) return undefined;
    this.#demand.ask(shape, this.#now());
    this.#specs.set(shape, spec);
    let found: Entry<T> | undefined;
    while (found === undefined) {
      const entry = [...this.#ready].find((each) => each.shape === shape);
      if (entry === undefined) break;
      // Before the first await: nobody else finds it.
      this.#ready.delete(entry);
      if (this.#isTooOld(entry)) void this.#discard(entry, "age");
      else if (!entry.thing.take()) this.#evictedElsewhere(entry);
      else if (await entry.thing.isFit().catch(() => false)) found = entry;
      else void this.#discard(entry, "unhealthy");
    }
    this.#fillSoon();
    if (found === undefined) {
      this.#counts.misses += 1;
      return undefined;
    }
    if (this.#closed) {
      await this.#discard(found, "closed");
      return undefined;
    }
    this.#claimed.set(found.thing.id, found);
    return found.thing;
  }

  /** It has an owner now. False if it was not claimed. */
  handedOut(id: SandboxId): boolean {
    if (!this.#claimed.delete(id)) return false;
    this.#counts.hits += 1;
    return true;
  }

  putBack(id: SandboxId): void {
    const entry = this.#claimed.get(id);
    if (entry === undefined) return;
    this.#claimed.delete(id);
    if (this.#closed) void this.#discard(entry, "closed");
    else if (entry.thing.putBack()) this.#ready.add(entry);
    else void this.#discard(entry, "unhealthy");
  }

  /** It was claimed and cannot be used after all. Resolves when nothing is left of it. */
  async giveUp(id: SandboxId): Promise<void> {
    const entry = this.#claimed.get(id);
    if (entry === undefined) return;
    this.#claimed.delete(id);
    await this.#discard(entry, "unhealthy");
  }

  stats(): WarmStats {
    const ready = [...this.#ready];
    const used = { memoryBytes: 0, pids: 0 };
    for (const { thing } of ready) {
      const held = thing.held();
      used.memoryBytes += held.memoryBytes;
      used.pids += held.pids;
    }
    const reserved = ready.reduce((sum, { thing }) => plus(sum, thing.amounts), NOTHING);
    return { ready: ready.length, ...this.#counts, waste: { ...this.#waste }, reserved, used };
  }

  /** Gives back at least so much of one resource, if it can. Resolves, when it is free, to whether anything is. */
  async giveBack(resource: Resource, amount: number): Promise<boolean> {
    this.#evictedAt = this.#now();
    this.#making?.abort.abort();
    const making = this.#making === undefined ? undefined : this.#filling;
    let freed = 0;
    const endings: Promise<void>[] = [];
    for (const entry of this.#leastWantedFirst()) {
      if (freed >= amount) break;
      freed += entry.thing.amounts[resource];
      endings.push(this.#endReady(entry, "evicted"));
    }
    // Somebody else may be about to free some for whoever asks.
    if (endings.length === 0 && making === undefined) endings.push(...this.#ending);
    const any = endings.length > 0 || making !== undefined;
    await Promise.all([...endings, making]);
    return any;
  }

  /** Ends those for which it is so and forgets their shapes. */
  async drain(stands: (spec: Spec) => boolean): Promise<void> {
    const shapes = [...this.#specs].flatMap(([shape, spec]) => (stands(spec) ? [shape] : []));
    const work: Promise<void>[] = [];
    for (const shape of shapes) {
      this.#demand.forget(shape);
      this.#specs.delete(shape);
      if (this.#making?.shape === shape) {
        this.#making.abort.abort();
        work.push(this.#filling ?? Promise.resolve());
      }
      for (const entry of this.#ready) if (entry.shape === shape) work.push(this.#endReady(entry, "drained"));
    }
    await Promise.all(work);
  }

  async evictAll(): Promise<void> {
    await this.giveBack("memoryBytes", Number.POSITIVE_INFINITY);
  }

  async idle(): Promise<void> {
    while (this.#filling !== undefined) await this.#filling;
    await Promise.all(this.#ending);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    this.#making?.abort.abort();
    await this.#filling;
    for (const entry of this.#ready) void this.#endReady(entry, "closed");
    for (const [id, entry] of this.#claimed) {
      this.#claimed.delete(id);
      void this.#discard(entry, "closed");
    }
    await Promise.all(this.#claims);
    await Promise.all(this.#ending);
  }

  #isTooOld({ madeAt }: Entry<T>): boolean {
    return this.#now() - madeAt >= this.#parts.settings.maxAgeMs;
  }

  #leastWantedFirst(): Entry<T>[] {
    const now = this.#now();
    return [...this.#ready].sort((a, b) => this.#demand.times(a.shape, now) - this.#demand.times(b.shape, now));
  }

  #endReady(entry: Entry<T>, why: WasteCause): Promise<void> {
    // Whoever took it elsewhere ends it, and we do so too.
    entry.thing.take();
    return this.#discard(entry, why);
  }

  #discard(entry: Entry<T>, why: WasteCause): Promise<void> {
    this.#ready.delete(entry);
    this.#waste[why] += 1;
    const ending = entry.thing.end().finally(() => this.#ending.delete(ending));
    this.#ending.add(ending);
    return ending;
  }

  /** Another process has taken it: to end it, because it needs the room. */
  #evictedElsewhere(entry: Entry<T>): void {
    this.#evictedAt = this.#now();
    void this.#discard(entry, "evicted");
  }

  #fillSoon(): void {
    if (!this.isOn) return;
    this.#timer ??= setInterval(() => this.#look(), LOOK_AGAIN_MS).unref();
    this.#filling ??= this.#fill()
      .catch((error: unknown) => this.#complain(error))
      .finally(() => {
        this.#filling = undefined;
      });
  }

  #complain(error: unknown): void {
    const { message } = HoldfastError.from(error);
    this.#parts.log.warn({ error: message }, "sandboxes that are kept ready could not be looked after");
  }

  #look(): void {
    try {
      this.#lookOnce();
    } catch (error) {
      this.#complain(error);
    }
  }

  #lookOnce(): void {
    if (this.#ready.size === 0 && this.#demand.ranked(this.#now()).length === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      this.#specs.clear();
      this.#backOff.keepOnly(() => false);
      return;
    }
    this.#weedOut();
    this.#fillSoon();
  }

  async #fill(): Promise<void> {
    const before = this.#counts.made;
    await sleep(PAUSE_MS);
    for (let next = this.#next(); next !== undefined && this.isOn; next = this.#next()) await this.#makeOne(next);
    if (this.#counts.made > before && this.#ready.size > 0) this.#report();
  }

  /** The shape of which the next one is to be made. */
  #next(): string | undefined {
    const { settings, canSpare } = this.#parts;
    const now = this.#now();
    if (now - this.#evictedAt < HOLD_OFF_MS || settings.mayWarm?.() === false) return undefined;
    const ranked = this.#demand.ranked(now);
    const wanting = [...targetsOf(ranked, settings)].find(([shape, target]) => {
      const spec = this.#specs.get(shape);
      return spec !== undefined && this.#countOf(shape) < target && this.#backOff.isOver(shape, now) && canSpare(spec);
    });
    if (wanting === undefined) return undefined;
    return this.#ready.size < settings.total || this.#makePlace() ? wanting[0] : undefined;
  }

  #countOf(shape: string): number {
    let count = 0;
    for (const entry of this.#ready) if (entry.shape === shape) count += 1;
    return count;
  }

  async #makeOne(shape: string): Promise<void> {
    const spec = this.#specs.get(shape);
    if (spec === undefined) return;
    const abort = new AbortController();
    this.#making = { shape, abort };
    try {
      const thing = await this.#parts.make(spec, abort.signal);
      this.#counts.made += 1;
      this.#backOff.succeeded(shape);
      const entry = { shape, thing, madeAt: this.#now() };
      this.#ready.add(entry);
      void thing.gone.then(() => {
        if (!this.#ready.has(entry)) return;
        if (thing.take()) void this.#discard(entry, "unhealthy");
        else this.#evictedElsewhere(entry);
      });
      // Its shape was drained, or its room is needed, while it was made.
      if (abort.signal.aborted) await this.#endReady(entry, this.#closed ? "closed" : "evicted");
    } catch (reason) {
      const error = HoldfastError.from(reason);
      if (abort.signal.aborted) return;
      this.#backOff.failed(shape, this.#now());
      this.#counts.failures += 1;
      // Somebody else was quicker to take the room; that is what room is for.
      if (error.code !== "host_capacity") {
        this.#parts.log.info({ error: error.message }, "a sandbox could not be made ready; it is tried again later");
      }
    } finally {
      this.#making = undefined;
    }
  }

  /** Of a shape that has more than its share now. False if there is none that was there for long. */
  #makePlace(): boolean {
    const now = this.#now();
    const targets = targetsOf(this.#demand.ranked(now), this.#parts.settings);
    const tooMany = this.#leastWantedFirst().find(
      ({ shape, madeAt }) => this.#countOf(shape) > (targets.get(shape) ?? 0) && now - madeAt >= LEAST_STAY_MS,
    );
    if (tooMany === undefined) return false;
    void this.#endReady(tooMany, "unwanted");
    return true;
  }

  #weedOut(): void {
    const now = this.#now();
    for (const entry of this.#ready) {
      if (this.#isTooOld(entry)) void this.#endReady(entry, "age");
      else if (!entry.thing.isCurrent()) {
        this.#demand.forget(entry.shape);
        void this.#endReady(entry, "drained");
      } else if (this.#demand.times(entry.shape, now) === 0) void this.#endReady(entry, "unwanted");
    }
    const isKnown = (shape: string) => this.#demand.times(shape, now) > 0;
    for (const shape of this.#specs.keys()) if (!isKnown(shape)) this.#specs.delete(shape);
    this.#backOff.keepOnly(isKnown);
  }

  #report(): void {
    const { ready, reserved, used } = this.stats();
    const facts = { ready, reserved: mapAmounts((resource) => reserved[resource]), used };
    this.#parts.log.info(
      facts,
      `${ready} sandbox(es) are kept ready; they hold ${used.pids} processes and ${formatBytes(used.memoryBytes)}`,
    );
  }
}

/** Looks at each running sandbox's counters every few seconds, one after the other so that the looks spread out. */
import type { Sandbox, SandboxStats } from "@holdfast/engine";
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { Logger } from "pino";
import type { SampleRow, Store } from "../store/store.js";

const HOUR_MS = 3_600_000;
/** Old samples are removed this often. */
const CLEAN_EVERY_MS = 60_000;
const BATCH = 32;

export type Look = SampleRow & {
  readonly pids: number;
  readonly cpuMs: number;
  readonly memoryPeakBytes: number | null;
  /** The limit of the moment; the sample has how far it may grow. */
  readonly memoryNowBytes: number;
};

interface Before {
  readonly atMs: number;
  readonly cpuMs: number;
}

export class Sampler {
  readonly #store: Store;
  readonly #log: Logger;
  readonly #sandboxes: () => Iterable<Sandbox>;
  readonly #everyMs: number;
  readonly #keepMs: number;
  readonly #before = new Map<SandboxId, Before>();
  readonly #stopping = new AbortController();
  #cleanedAtMs = 0;
  #done: Promise<void> = Promise.resolve();

  constructor(parts: {
    readonly store: Store;
    readonly log: Logger;
    readonly sandboxes: () => Iterable<Sandbox>;
    readonly everySeconds: number;
    readonly keepHours: number;
  }) {
    this.#store = parts.store;
    this.#log = parts.log;
    this.#sandboxes = parts.sandboxes;
    this.#everyMs = parts.everySeconds * 1000;
    this.#keepMs = parts.keepHours * HOUR_MS;
  }

  start(): void {
    this.#done = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#done;
  }

  async look(sandbox: Sandbox): Promise<Look> {
    const stats = await sandbox.stats();
    return this.#sampleOf(sandbox, stats, Date.now(), { remember: false });
  }

  forget(id: SandboxId): void {
    this.#before.delete(id);
  }

  async #run(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      const startedAtMs = Date.now();
      try {
        await this.#sampleAll();
        await this.#clean(startedAtMs);
      } catch (error) {
        this.#log.warn({ error: HoldfastError.from(error).message }, "the counters of sandboxes could not be kept");
      }
      await this.#pause(Math.max(0, this.#everyMs - (Date.now() - startedAtMs)));
    }
  }

  async #sampleAll(): Promise<void> {
    const sandboxes = [...this.#sandboxes()];
    // The whole round takes half of the time there is: no burst that requests would feel.
    const restMs = (this.#everyMs / 2) * (BATCH / Math.max(BATCH, sandboxes.length));
    for (let i = 0; i < sandboxes.length && !this.#stopping.signal.aborted; i += BATCH) {
      const rows: Look[] = [];
      for (const sandbox of sandboxes.slice(i, i + BATCH)) {
        if (sandbox.state !== "running") continue;
        try {
          rows.push(this.#sampleOf(sandbox, await sandbox.stats(), Date.now(), { remember: true }));
        } catch {
          // It ended while we looked.
        }
      }
      if (rows.length > 0) await this.#store.samples.insert(rows.map(plainSample));
      if (i + BATCH < sandboxes.length) await this.#pause(restMs);
    }
  }

  async #clean(nowMs: number): Promise<void> {
    if (nowMs - this.#cleanedAtMs < CLEAN_EVERY_MS) return;
    this.#cleanedAtMs = nowMs;
    await this.#store.samples.removeBefore(new Date(nowMs - this.#keepMs));
  }

  #sampleOf(sandbox: Sandbox, stats: SandboxStats, atMs: number, options: { readonly remember: boolean }): Look {
    const before = this.#before.get(sandbox.id) ?? { atMs: sandbox.createdAt.getTime(), cpuMs: 0 };
    const cpuCount = Math.max(1, Math.ceil(sandbox.limits.cpuMillis / 1000));
    const share = (stats.cpuMs - before.cpuMs) / Math.max(1, atMs - before.atMs) / cpuCount;
    if (options.remember) this.#before.set(sandbox.id, { atMs, cpuMs: stats.cpuMs });
    return {
      sandboxId: sandbox.id,
      at: new Date(atMs),
      cpuCount,
      cpuUsedPct: Math.round(Math.max(0, share) * 10_000) / 100,
      memoryBytes: stats.memoryBytes,
      memoryLimitBytes: stats.memoryCeilingBytes,
      memoryCacheBytes: stats.memoryCacheBytes,
      diskBytes: stats.diskBytes ?? 0,
      diskLimitBytes: stats.diskLimitBytes,
      pids: stats.pids,
      cpuMs: stats.cpuMs,
      memoryPeakBytes: stats.memoryPeakBytes,
      memoryNowBytes: stats.memoryLimitBytes,
    };
  }

  #pause(ms: number): Promise<void> {
    const { signal } = this.#stopping;
    return new Promise((resolve) => {
      if (signal.aborted) {
        resolve();
        return;
      }
      const timer = setTimeout(done, ms);
      timer.unref();
      signal.addEventListener("abort", done, { once: true });
      function done(): void {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        resolve();
      }
    });
  }
}

function plainSample({ pids: _pids, cpuMs: _cpuMs, ...sample }: Look): SampleRow {
  return sample;
}

/**
 * Everything as text, for whoever scrapes. What has to be read first is read in parts: one that fails, or takes too long, is
 * left out and counted, and the others are there. However many ask and however often, it is read once a second at most.
 */
import { HoldfastError } from "@holdfast/protocol";
import type { Logger } from "pino";
import { Counter, type Gauge, type Registry } from "prom-client";

const FRESH_MS = 1000;
const PATIENCE_MS = 2000;

export interface Reading {
  readonly part: "host" | "sandboxes" | "process" | "pool";
  /** What it sets; an old value would be a lie when it cannot be read. */
  readonly gauges: readonly Gauge[];
  read(): Promise<void>;
  close?(): void;
}

export class Exposition {
  readonly contentType: string;
  readonly #registry: Registry;
  readonly #readings: readonly Reading[];
  readonly #log: Logger;
  readonly #failures: Counter<"part">;
  /** Those that have not come back: nobody asks a second time before they have. */
  readonly #busy = new Set<Reading>();
  #shared: Promise<string> | undefined;
  #readAtMs = Number.NEGATIVE_INFINITY;

  constructor(parts: { readonly registry: Registry; readonly readings: readonly Reading[]; readonly log: Logger }) {
    this.#registry = parts.registry;
    this.contentType = parts.registry.contentType;
    this.#readings = parts.readings;
    this.#log = parts.log;
    this.#failures = new Counter({
      name: "holdfast_scrape_failures_total",
      help: "Parts of a scrape that could not be read and were left out",
      labelNames: ["part"],
      registers: [parts.registry],
    });
    for (const { part } of parts.readings) this.#failures.inc({ part }, 0);
  }

  text(): Promise<string> {
    this.#shared ??= this.#write().finally(() => {
      this.#shared = undefined;
    });
    return this.#shared;
  }

  close(): void {
    for (const reading of this.#readings) reading.close?.();
  }

  async #write(): Promise<string> {
    if (performance.now() - this.#readAtMs >= FRESH_MS) {
      await Promise.all(this.#readings.map((reading) => this.#read(reading)));
      this.#readAtMs = performance.now();
    }
    return this.#registry.metrics();
  }

  async #read(reading: Reading): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    try {
      if (this.#busy.has(reading)) throw new Error("the last reading has not come back");
      this.#busy.add(reading);
      const done = reading.read().finally(() => this.#busy.delete(reading));
      const tooLong = new Promise<never>((_resolve, reject) => {
        timer = setTimeout(() => reject(new Error(`not there after ${PATIENCE_MS} ms`)), PATIENCE_MS);
      });
      await Promise.race([done, tooLong]);
    } catch (error) {
      this.#failures.inc({ part: reading.part });
      for (const gauge of reading.gauges) forget(gauge);
      this.#log.warn({ part: reading.part, error: HoldfastError.from(error).message }, "metrics could not be read");
    } finally {
      clearTimeout(timer);
    }
  }
}

/** `reset` would make 0 of it. */
function forget(gauge: Gauge): void {
  gauge.reset();
  gauge.remove({});
}

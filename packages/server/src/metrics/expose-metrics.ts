/** Puts together what is counted and what is read of one server. */
import type { Engine } from "@holdfast/engine";
import type { Logger } from "pino";
import { Gauge } from "prom-client";
import { Exposition } from "./exposition.js";
import { hostGauges } from "./host-gauges.js";
import type { Metrics } from "./metrics.js";
import { processGauges } from "./process-gauges.js";
import { type SandboxCounts, sandboxGauges } from "./sandbox-gauges.js";

export function exposeMetrics(parts: {
  readonly metrics: Metrics;
  readonly engine: Pick<Engine, "budget" | "kind" | "warm">;
  readonly sandboxes: { counts(): SandboxCounts };
  readonly version: string;
  readonly log: Logger;
}): Exposition {
  const { engine, sandboxes, log } = parts;
  const { registry } = parts.metrics;
  new Gauge({
    name: "holdfast_info",
    help: "Always 1; its labels say which server this is",
    labelNames: ["version", "engine"],
    registers: [registry],
  }).set({ version: parts.version, engine: engine.kind }, 1);
  const readings = [
    hostGauges(registry, () => engine.budget({ reservations: false })),
    sandboxGauges(registry, () => sandboxes.counts()),
    processGauges(registry),
    { part: "pool" as const, gauges: [], read: async () => parts.metrics.pool(engine.warm.stats()) },
  ];
  return new Exposition({ registry, readings, log });
}

/** The host's budget, as it is at the moment of a scrape. */
import type { Amounts, BudgetReport, Resource } from "@holdfast/engine";
import { Gauge, type Registry } from "prom-client";
import type { Reading } from "./exposition.js";

const UNITS: Readonly<Record<Resource, readonly [name: string, unit: string, word: string]>> = {
  memoryBytes: ["memory", "_bytes", "Memory"],
  pids: ["pids", "", "Processes and threads"],
  diskBytes: ["disk", "_bytes", "Disk"],
};

/** What is shown of each of them. */
const SIDES = {
  host: "the whole: what the host has, or the cgroups around us allow",
  available: "what nobody uses",
  kept: "what is kept for the host and for ourselves",
  capacity: "what can be promised if nobody else uses anything: the whole less what is kept",
  room: "what can be promised now, all promises together",
  reserved: "what is promised",
  used: "what our sandboxes hold",
} as const;
type Side = keyof typeof SIDES;

function amountsOf({ host, reserve, capacity, room, reserved, used }: BudgetReport): Readonly<Record<Side, Amounts>> {
  return {
    host: { memoryBytes: host.memoryBytes, pids: host.pids, diskBytes: host.diskBytes },
    available: {
      memoryBytes: host.memoryAvailableBytes,
      pids: host.pidsAvailable,
      diskBytes: Math.max(0, host.diskBytes - host.diskUsedBytes),
    },
    kept: reserve,
    capacity,
    room,
    reserved,
    used,
  };
}

export function hostGauges(registry: Registry, budget: () => Promise<BudgetReport>): Reading {
  const gauges = (Object.keys(UNITS) as Resource[]).flatMap((resource) =>
    (Object.keys(SIDES) as Side[]).map((side) => {
      const [name, unit, word] = UNITS[resource];
      const gauge = new Gauge({
        name: `holdfast_${name}_${side}${unit}`,
        help: `${word}: ${SIDES[side]}`,
        registers: [registry],
      });
      return { gauge, side, resource };
    }),
  );
  const waiting = new Gauge({
    name: "holdfast_queue_length",
    help: "Those who wait for room on the host now",
    registers: [registry],
  });
  return {
    part: "host",
    gauges: [...gauges.map(({ gauge }) => gauge), waiting],
    async read() {
      const report = await budget();
      const amounts = amountsOf(report);
      for (const { gauge, side, resource } of gauges) gauge.set(amounts[side][resource]);
      waiting.set(report.waiting);
    },
  };
}

/** How many sandboxes there are in each state: counted in memory, nothing is asked of any of them. */
import { Gauge, type Registry } from "prom-client";
import type { SandboxRow } from "../store/store.js";
import type { Reading } from "./exposition.js";

/** `stopped` is paused with its files only. */
export const COUNTED_STATES = ["creating", "running", "paused", "stopped"] as const;
export type SandboxCounts = Readonly<Record<(typeof COUNTED_STATES)[number], number>>;

/** Those on their way have no life of their own yet, or one that says so; those that have just ended do not count. */
export function countLives(
  lives: readonly { readonly row: Pick<SandboxRow, "status" | "memoryKept"> }[],
  creating: number,
): SandboxCounts {
  const counts = { creating, running: 0, paused: 0, stopped: 0 };
  for (const { row } of lives) {
    if (row.status === "running") counts.running += 1;
    else if (row.status === "paused") counts[row.memoryKept === false ? "stopped" : "paused"] += 1;
  }
  return counts;
}

export function sandboxGauges(registry: Registry, counts: () => SandboxCounts): Reading {
  const gauge = new Gauge({
    name: "holdfast_sandboxes",
    help: "Sandboxes by state; stopped ones are paused with their files only",
    labelNames: ["state"],
    registers: [registry],
  });
  return {
    part: "sandboxes",
    gauges: [gauge],
    async read() {
      const now = counts();
      for (const state of COUNTED_STATES) gauge.set({ state }, now[state]);
    },
  };
}

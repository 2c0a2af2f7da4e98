/** New limits for a sandbox that runs: refused as a whole, or in force and written down. */
import type { Sandbox } from "@holdfast/engine";
import { ceilingBytesOf, changedLimits, HoldfastError, type ResizeLimits } from "@holdfast/protocol";
import { lifeEvents } from "./life-events.js";
import type { LifeRecord } from "./life-record.js";

export async function resizeSandbox(
  record: LifeRecord,
  sandbox: Sandbox | undefined,
  { limits, reserve }: { readonly limits: ResizeLimits; readonly reserve: (grownBytes: number) => void },
): Promise<void> {
  if (record.row.status === "paused" || sandbox === undefined) {
    throw new HoldfastError("sandbox_paused", `sandbox ${record.row.id} is paused`, { hint: "Resume it first." });
  }
  const before = record.row.limits;
  const after = changedLimits(before, limits);
  const grownBytes = ceilingBytesOf(after) - ceilingBytesOf(before);
  // What it gives back is not given to anybody before it is there.
  if (grownBytes > 0) reserve(grownBytes);
  try {
    await sandbox.resize(limits);
  } catch (error) {
    if (grownBytes > 0) reserve(-grownBytes);
    throw error;
  }
  if (grownBytes < 0) reserve(grownBytes);
  await record.fact({ limits: after }, lifeEvents.resized(before, after));
}

/** What nobody can be given, whoever asks and by whichever route. */
import type { Engine, HostCapacity } from "@holdfast/engine";
import {
  formatBytes,
  HoldfastError,
  invalidArgument,
  PRIORITIES,
  PRIORITY_KEY,
  type SandboxLimits,
} from "@holdfast/protocol";
import type { ServerConfig } from "../config/schema.js";

export function checkTimeout(timeoutMs: number, config: ServerConfig): void {
  const maxMs = config.maxTimeoutSeconds * 1000;
  if (timeoutMs <= maxMs) return;
  throw new HoldfastError("invalid_argument", `timeoutMs: expected at most ${maxMs}, got ${timeoutMs}`, {
    details: { field: "timeoutMs" },
    hint: "It can be extended again and again. The server's setting maxTimeoutSeconds bounds one step.",
  });
}

export function checkPriority(metadata: Readonly<Record<string, string>>): void {
  const priority = metadata[PRIORITY_KEY];
  if (priority === undefined || (PRIORITIES as readonly string[]).includes(priority)) return;
  throw invalidArgument(`metadata.${PRIORITY_KEY}`, priority, `one of ${PRIORITIES.join(", ")}`);
}

/** What a host has in all hardly ever changes, and looking takes as long as half a hand-over. */
const CAPACITY_FRESH_MS = 1000;
const capacities = new WeakMap<Engine, { readonly capacity: HostCapacity; readonly until: number }>();

async function capacityOf(engine: Engine): Promise<HostCapacity> {
  const known = capacities.get(engine);
  if (known !== undefined && performance.now() < known.until) return known.capacity;
  const capacity = await engine.capacity();
  capacities.set(engine, { capacity, until: performance.now() + CAPACITY_FRESH_MS });
  return capacity;
}

/** A limit above what the host has bounds nothing. */
export async function checkAgainstHost(
  limits: { readonly [K in keyof SandboxLimits]?: SandboxLimits[K] | undefined },
  engine: Engine,
): Promise<void> {
  const capacity = await capacityOf(engine);
  const bounds = [
    ["memoryBytes", capacity.memoryBytes, formatBytes],
    ["memoryMaxBytes", capacity.memoryBytes, formatBytes],
    ["diskBytes", capacity.diskBytes, formatBytes],
    ["pids", capacity.pids, String],
  ] as const;
  for (const [name, most, show] of bounds) {
    const asked = limits[name];
    if (asked === undefined || asked <= most) continue;
    throw new HoldfastError(
      "invalid_argument",
      `limits.${name}: expected at most ${most} (${show(most)}, which is all that this host has), got ${asked}`,
      { details: { field: `limits.${name}` } },
    );
  }
}

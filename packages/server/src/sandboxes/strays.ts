/**
 * Stopped sandboxes that nobody knows, found at the start. The command line builds images beside us: what a step of it has
 * written is such a sandbox for a moment, until it becomes a layer. What is still there later is nobody's.
 */
import type { Engine } from "@holdfast/engine";
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { Logger } from "pino";
import type { Metrics } from "../metrics/metrics.js";

const MOMENT_MS = 30_000;

/** Returns how to leave them to the next server. */
export function discardLater(
  parts: {
    readonly engine: Engine;
    readonly log: Logger;
    readonly metrics: Pick<Metrics, "cleanUpFailed" | "orphansReaped">;
  },
  strays: readonly SandboxId[],
  afterMs = MOMENT_MS,
): () => void {
  const discard = async (): Promise<void> => {
    const stopped = new Set(parts.engine.stopped());
    for (const id of strays.filter((stray) => stopped.has(stray))) {
      try {
        await parts.engine.discard(id);
        parts.metrics.orphansReaped(1);
      } catch (error) {
        parts.metrics.cleanUpFailed("sandbox");
        parts.log.warn({ sandbox: id, error: HoldfastError.from(error).message }, "a stray sandbox is left");
      }
    }
  };
  const timer = strays.length === 0 ? undefined : setTimeout(() => void discard(), afterMs).unref();
  return () => clearTimeout(timer);
}

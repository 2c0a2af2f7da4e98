/** Opens the engine as most tests want it: what it warns of belongs into the test's output. */
import { BubblewrapEngine, type PoolKind } from "@holdfast/engine";
import type { OpenEngine } from "./shared-engine.js";

export function openBubblewrap(pool: PoolKind = "btrfs"): OpenEngine {
  const log = {
    info: () => {},
    warn: (facts: Record<string, unknown>, message: string) => console.warn(message, facts),
  };
  return (stateDirectory) => BubblewrapEngine.open({ stateDirectory, pool, log });
}

/** Counts what the engine and the images say they could not remove. */
import type { Log } from "@holdfast/engine";
import type { Metrics } from "./metrics.js";

export function countLeft(log: Log, metrics: Pick<Metrics, "cleanUpFailed">): Log {
  return {
    info: (facts, message) => log.info(facts, message),
    warn: (facts, message) => {
      if (facts.left !== undefined) metrics.cleanUpFailed(facts.left);
      log.warn(facts, message);
    },
  };
}

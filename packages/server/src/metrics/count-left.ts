/** Counts what the engine, the images and the volumes say they could not remove. */
import type { Log, LogFacts } from "@holdfast/engine";
import type { Metrics } from "./metrics.js";

export interface CountedLog extends Log {
  error(facts: LogFacts, message: string): void;
}

export function countLeft(log: CountedLog, metrics: Pick<Metrics, "cleanUpFailed">): CountedLog {
  return {
    error: (facts, message) => log.error(facts, message),
    info: (facts, message) => log.info(facts, message),
    warn: (facts, message) => {
      if (facts.left !== undefined) metrics.cleanUpFailed(facts.left);
      log.warn(facts, message);
    },
  };
}

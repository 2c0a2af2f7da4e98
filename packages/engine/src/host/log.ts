export const LEFTOVERS = ["sandbox", "layer", "volume"] as const;

/** `left` says that something of that kind could not be removed: whoever keeps the log can count on it. */
export interface LogFacts extends Readonly<Record<string, unknown>> {
  readonly left?: (typeof LEFTOVERS)[number];
}

/** Structured, and handed in: there is no global logger. */
export interface Log {
  info(facts: LogFacts, message: string): void;
  warn(facts: LogFacts, message: string): void;
}

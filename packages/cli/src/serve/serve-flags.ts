/** The flags of `holdfast serve`: one for each setting, and three of its own. */

export interface ServeFlags {
  readonly config?: string;
  readonly printConfig?: boolean;
  readonly json?: boolean;
  /** Each setting by its flag. What they may be is the server's to say. */
  readonly [setting: string]: unknown;
}

const OWN = ["config", "printConfig", "json"];
/** Shared with other commands, and named shorter there. */
const OTHER_NAMES: Readonly<Record<string, string>> = { stateDir: "stateDirectory" };

/** By the names that the server's configuration has for them. */
export function fieldsFromFlags(flags: ServeFlags): Record<string, unknown> {
  const settings = Object.entries(flags).filter(([name]) => !OWN.includes(name));
  return Object.fromEntries(settings.map(([name, value]) => [OTHER_NAMES[name] ?? name, value]));
}

/** What a key may have, from flags. `none` lifts a limit that is configured. */
import { invalidArgument, parseSize } from "@holdfast/protocol";
import type { KeyLimits } from "@holdfast/server";
import { parseCount } from "../parse-flags.js";

export interface KeyLimitFlags {
  readonly sandboxes?: string;
  readonly memory?: string;
  readonly rate?: string;
}

function limitOf(
  text: string | undefined,
  configured: number | null,
  flag: string,
  parse: (text: string) => number,
): number | null {
  if (text === undefined) return configured;
  if (text === "none") return null;
  const value = parse(text);
  if (value < 1) throw invalidArgument(flag, text, "more than nothing; `none` means no limit");
  return value;
}

export function parseKeyLimits(flags: KeyLimitFlags, configured: KeyLimits): KeyLimits {
  return {
    sandboxes: limitOf(flags.sandboxes, configured.sandboxes, "--sandboxes", (text) => parseCount("--sandboxes", text)),
    memoryBytes: limitOf(flags.memory, configured.memoryBytes, "--memory", (text) => parseSize(text, "--memory")),
    requestsPerSecond: limitOf(flags.rate, configured.requestsPerSecond, "--rate", (text) =>
      parseCount("--rate", text),
    ),
  };
}

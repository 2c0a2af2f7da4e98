/** Numbers and variables as they are typed. Each mistake is named by its flag, with what would be right. */
import { invalidArgument, parseSizeRange } from "@holdfast/protocol";

export type Environment = Readonly<Record<string, string | undefined>>;

/** In thousandths: "1.5" is 1500. */
export function parseCpus(text: string): number {
  if (!/^\d+(\.\d+)?$/.test(text)) throw invalidArgument("--cpus", text, 'a number of CPUs such as "1.5" or "0.25"');
  return Math.round(Number(text) * 1000);
}

export function parseCount(flag: string, text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw invalidArgument(flag, text, "a whole number");
  return Number(text);
}

/** K=V, or K alone for the caller's value. Nothing else of the caller's environment goes in. */
export function parseEnvironment(entries: readonly string[], ours: Environment): Record<string, string> {
  const env: Record<string, string> = {};
  for (const entry of entries) {
    const equals = entry.indexOf("=");
    const name = equals === -1 ? entry : entry.slice(0, equals);
    if (name === "") throw invalidArgument("--env", entry, "NAME=VALUE, or NAME to take the value it has here");
    const value = equals === -1 ? ours[name] : entry.slice(equals + 1);
    if (value === undefined) throw invalidArgument("--env", entry, `${name}=VALUE, because ${name} is not set here`);
    env[name] = value;
  }
  return env;
}

/** Unlike a variable, a note has no value here to take. */
export function parsePairs(flag: string, entries: readonly string[]): Record<string, string> {
  const pairs: Record<string, string> = {};
  for (const entry of entries) {
    const equals = entry.indexOf("=");
    if (equals < 1) throw invalidArgument(flag, entry, "NAME=VALUE");
    pairs[entry.slice(0, equals)] = entry.slice(equals + 1);
  }
  return pairs;
}

/** `--memory 256m`, or `--memory 128m..1g` for a limit that starts with the first and may grow to the second. */
export function parseMemory(text: string | undefined): { memoryBytes?: number; memoryMaxBytes?: number } {
  if (text === undefined) return {};
  const { bytes, maxBytes } = parseSizeRange(text, "--memory");
  return { memoryBytes: bytes, ...(maxBytes === undefined ? {} : { memoryMaxBytes: maxBytes }) };
}

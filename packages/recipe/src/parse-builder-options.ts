/** What a build gets, from a value that nobody vouches for. Whether the host has as much is for the builder to say. */
import { defined, type NumberRules, optional, readBoolean, readNumber, readObject, refuse } from "./fields.js";
import type { BuilderOptions } from "./recipe.js";

const MEMORY: NumberRules = { min: 16, max: 2 ** 30, unit: "MiB" };
const NUMBERS = {
  memoryMb: MEMORY,
  memoryStartMb: MEMORY,
  cpus: { min: 0.01, max: 1000, whole: false },
  diskMb: { min: 1, max: 2 ** 30, unit: "MiB" },
  timeoutS: { min: 1, max: 30 * 86_400, unit: "seconds" },
  runtimeMemoryMb: MEMORY,
} as const satisfies Record<string, NumberRules>;

function isNetwork(value: unknown): value is "on" | "off" {
  return value === "on" || value === "off";
}

export function parseBuilderOptions(value: unknown, field = "builder"): BuilderOptions {
  const members = readObject(value, field, [...Object.keys(NUMBERS), "retryOnOom", "network"]);
  const number = (name: keyof typeof NUMBERS): number | undefined =>
    optional(members.get(name), members.at(name), (given, at) => readNumber(given, at, NUMBERS[name]));
  return defined<BuilderOptions>({
    memoryMb: number("memoryMb"),
    memoryStartMb: number("memoryStartMb"),
    cpus: number("cpus"),
    diskMb: number("diskMb"),
    timeoutS: number("timeoutS"),
    runtimeMemoryMb: number("runtimeMemoryMb"),
    retryOnOom: optional(members.get("retryOnOom"), members.at("retryOnOom"), readBoolean),
    network: optional(members.get("network"), members.at("network"), (given, at) => {
      if (!isNetwork(given)) throw refuse(at, given, '"on" or "off"');
      return given;
    }),
  });
}

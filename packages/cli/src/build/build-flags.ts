/** From the flags of `holdfast build` to what the build gets. Every mistake is named by its flag. */
import { invalidArgument, parseDuration, parseSize } from "@holdfast/protocol";
import type { BuilderOptions } from "@holdfast/recipe";
import type { ImageHostFlags } from "../images/open-host.js";
import { parseCpus, parsePairs } from "../parse-flags.js";

export interface BuildFlags extends ImageHostFlags {
  readonly tag?: readonly string[];
  readonly file?: string;
  readonly builderMemory?: string;
  readonly runtimeMemory?: string;
  readonly cpus?: string;
  readonly disk?: string;
  readonly timeout?: string;
  readonly buildArg?: readonly string[];
  readonly target?: string;
  /** False for --no-cache. */
  readonly cache?: boolean;
  readonly network?: "on" | "off";
  readonly retryOnOom?: boolean;
  readonly json?: boolean;
  readonly progress?: "auto" | "plain";
}

const MIB = 1024 * 1024;
const MAX_SECONDS = 30 * 86_400;

/** In whole MiB, as the builder counts; what is between goes up. */
function parseMib(flag: string, text: string, leastMib: number): number {
  const mib = Math.ceil(parseSize(text, flag) / MIB);
  if (mib < leastMib) throw invalidArgument(flag, text, `a size of at least ${leastMib}m, such as "4g"`);
  return mib;
}

/** `4g`, or `512m..8g`: a step starts with the first and may grow to the second. */
function parseBuilderMemory(text: string | undefined): Pick<BuilderOptions, "memoryMb" | "memoryStartMb"> {
  if (text === undefined) return {};
  const flag = "--builder-memory";
  const [start = "", most, ...rest] = text.split("..");
  if (rest.length > 0) throw invalidArgument(flag, text, 'a size such as "4g", or two such as "512m..8g"');
  if (most === undefined) return { memoryMb: parseMib(flag, start, 16) };
  const range = { memoryMb: parseMib(flag, most, 16), memoryStartMb: parseMib(flag, start, 16) };
  if (range.memoryStartMb > range.memoryMb)
    throw invalidArgument(flag, text, "a second size that is not below the first");
  return range;
}

function parseSeconds(flag: string, text: string): number {
  const seconds = Math.ceil(parseDuration(text, flag) / 1000);
  if (seconds < 1 || seconds > MAX_SECONDS) throw invalidArgument(flag, text, 'a time from 1s to 30d, such as "30m"');
  return seconds;
}

/** Only what was said: the rest is the image's own to say, and then the builder's. */
export function parseBuilderFlags(flags: BuildFlags): BuilderOptions {
  const cpus = flags.cpus === undefined ? undefined : parseCpus(flags.cpus) / 1000;
  if (cpus !== undefined && cpus < 0.01) throw invalidArgument("--cpus", flags.cpus, "at least 0.01");
  return {
    ...parseBuilderMemory(flags.builderMemory),
    ...(flags.runtimeMemory === undefined
      ? {}
      : { runtimeMemoryMb: parseMib("--runtime-memory", flags.runtimeMemory, 16) }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(flags.disk === undefined ? {} : { diskMb: parseMib("--disk", flags.disk, 1) }),
    ...(flags.timeout === undefined ? {} : { timeoutS: parseSeconds("--timeout", flags.timeout) }),
    ...(flags.network === undefined ? {} : { network: flags.network }),
    ...(flags.retryOnOom === true ? { retryOnOom: true } : {}),
  };
}

/** `K=V`, or `K` alone for the value it has here, as docker takes them. */
export function parseBuildArgs(
  entries: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const whole = entries.flatMap((entry) => {
    if (entry.includes("=")) return [entry];
    const value = env[entry];
    if (value === undefined) {
      throw invalidArgument(
        "--build-arg",
        entry,
        `${entry || "NAME"}=VALUE, because ${entry || "NAME"} is not set here`,
      );
    }
    return [`${entry}=${value}`];
  });
  return parsePairs("--build-arg", whole);
}

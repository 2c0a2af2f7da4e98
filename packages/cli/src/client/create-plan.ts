/** From flags to the sandbox that the server is asked for. */
import {
  type CreateSandboxBody,
  HoldfastError,
  invalidArgument,
  MAX_TIMEOUT_MS,
  parseDuration,
  parseSize,
} from "@holdfast/protocol";
import { type Environment, parseCount, parseCpus, parseEnvironment, parseMemory, parsePairs } from "../parse-flags.js";

export interface CreateLimitFlags {
  readonly template?: string;
  readonly image?: string;
  readonly strict?: boolean;
  readonly memory?: string;
  readonly cpus?: string;
  readonly pids?: string;
  readonly disk?: string;
  readonly timeout?: string;
  readonly wait?: string;
  readonly onTimeout?: "kill" | "pause" | "stop";
  readonly autoResume?: boolean;
  readonly env?: readonly string[];
  readonly metadata?: readonly string[];
}

export function parseLifetime(text: string): number {
  const ms = parseDuration(text, "--timeout");
  if (ms < 1000 || ms > MAX_TIMEOUT_MS) throw invalidArgument("--timeout", text, "a time from 1s to 30d");
  return ms;
}

export function planCreate(flags: CreateLimitFlags, env: Environment): CreateSandboxBody {
  if (flags.image !== undefined && flags.template !== undefined) {
    throw new HoldfastError(
      "invalid_argument",
      "--image: a sandbox starts from an image or a template, not from both",
      {
        hint: "Leave out one of --image and --template.",
        details: { field: "--image" },
      },
    );
  }
  return {
    ...(flags.template === undefined ? {} : { template: flags.template }),
    ...(flags.image === undefined ? {} : { image: flags.image }),
    ...(flags.strict === true ? { strict: true } : {}),
    limits: {
      ...parseMemory(flags.memory),
      ...(flags.cpus === undefined ? {} : { cpuMillis: parseCpus(flags.cpus) }),
      ...(flags.pids === undefined ? {} : { pids: parseCount("--pids", flags.pids) }),
      ...(flags.disk === undefined ? {} : { diskBytes: parseSize(flags.disk, "--disk") }),
    },
    ...(flags.timeout === undefined ? {} : { timeoutMs: parseLifetime(flags.timeout) }),
    ...(flags.wait === undefined ? {} : { waitMs: parseDuration(flags.wait, "--wait") }),
    ...(flags.onTimeout === undefined ? {} : { onTimeout: flags.onTimeout }),
    ...(flags.autoResume === true ? { autoResume: true } : {}),
    env: parseEnvironment(flags.env ?? [], env),
    metadata: parsePairs("--metadata", flags.metadata ?? []),
  };
}

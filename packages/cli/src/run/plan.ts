/** From flags, which are text, to what is to be run. Every mistake is named by its flag, with what would be right. */
import { statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { CommandSpec, ImageSource, MountSpec, PoolKind, SandboxSpec } from "@holdfast/engine";
import {
  HoldfastError,
  invalidArgument,
  parseDuration,
  parseSize,
  resolveSandboxLimits,
  type SandboxLimits,
} from "@holdfast/protocol";
import { type EngineFlags, parseEngineFlags } from "../engine-options.js";
import { type Environment, parseCount, parseCpus, parseEnvironment, parseMemory } from "../parse-flags.js";
import { nameFlag } from "./name-flag.js";

/** As commander hands them over. */
export interface RunFlags extends EngineFlags {
  readonly image?: string;
  readonly strict?: boolean;
  /** False for --no-start. */
  readonly start?: boolean;
  readonly memory?: string;
  readonly pids?: string;
  readonly cpus?: string;
  readonly disk?: string;
  readonly timeout?: string;
  readonly wait?: string;
  readonly grace?: string;
  readonly env?: readonly string[];
  readonly workdir?: string;
  readonly user?: string;
  readonly mount?: readonly string[];
  readonly hostname?: string;
  readonly interactive?: boolean;
  readonly tty?: boolean;
  readonly json?: boolean;
  readonly jsonFile?: string;
}

/** An image by name, digest or id: what the sandbox gets of it is known when it is found. */
export interface NamedImage {
  readonly reference: string;
  readonly strict: boolean;
  /** Whether its start command is started before the command. */
  readonly start: boolean;
}

export interface RunPlan {
  readonly engine: { readonly stateDirectory?: string; readonly pool?: PoolKind };
  /** Without limits, and without an image if one is named. */
  readonly sandbox: Partial<SandboxSpec>;
  /** Only the limits that were asked for. */
  readonly asked: Partial<SandboxLimits>;
  readonly named: NamedImage | undefined;
  /** Its words may be missing if an image is named: then the image says them. */
  readonly command: CommandSpec;
  readonly graceMs: number;
  /** How long to wait for room on the host. */
  readonly waitMs: number;
  readonly interactive: boolean;
  readonly tty: boolean;
}

/** A path is one that begins like one, or has a slash and is there; `team/app` is the name of an image. Undefined: a name. */
function parseImage(text: string): ImageSource | undefined {
  if (text === "host") return { kind: "host" };
  const path = resolve(text);
  const isPath =
    /^(\/|\.\.?(\/|$))/.test(text) || (text.includes("/") && statSync(path, { throwIfNoEntry: false }) !== undefined);
  return isPath ? { kind: "rootfs", path } : undefined;
}

/** SRC:DST[:ro]. A relative SRC starts at the current directory, as in the shell. */
export function parseMount(text: string): MountSpec {
  const expected = "SRC:DST or SRC:DST:ro, with DST an absolute path inside the sandbox";
  const [source = "", target = "", mode = "rw", ...rest] = text.split(":");
  const isModeKnown = mode === "ro" || mode === "rw";
  if (source === "" || !target.startsWith("/") || !isModeKnown || rest.length > 0) {
    throw invalidArgument("--mount", text, expected);
  }
  const mount = { source: resolve(source), target, readOnly: mode === "ro" };
  if (statSync(mount.source, { throwIfNoEntry: false }) === undefined) {
    throw invalidArgument("--mount", text, `a source that exists (there is no ${mount.source})`);
  }
  return mount;
}

/** Those that were asked for; the others are the image's or the host's to say. */
function parseLimits(flags: RunFlags): Partial<SandboxLimits> {
  try {
    const asked = {
      ...parseMemory(flags.memory),
      ...(flags.pids === undefined ? {} : { pids: parseCount("--pids", flags.pids) }),
      ...(flags.cpus === undefined ? {} : { cpuMillis: parseCpus(flags.cpus) }),
      ...(flags.disk === undefined ? {} : { diskBytes: parseSize(flags.disk, "--disk") }),
    };
    resolveSandboxLimits(asked);
    return asked;
  } catch (error) {
    throw nameFlag(error);
  }
}

function planImage(flags: RunFlags, argv: readonly string[]): Pick<RunPlan, "sandbox" | "named"> {
  const text = flags.image ?? "host";
  const image = parseImage(text);
  if (image === undefined) {
    const { strict, start } = flags;
    return { sandbox: {}, named: { reference: text, strict: strict === true, start: start !== false } };
  }
  if (argv.length === 0) {
    throw new HoldfastError(
      "invalid_argument",
      "the command is missing: only an image that has a name may say what to run",
      {
        hint: "Try `holdfast run -- echo hello`, or `holdfast run --image NAME`.",
        details: { field: "the command" },
      },
    );
  }
  return { sandbox: { image }, named: undefined };
}

function parseTimeout(text: string): number {
  const ms = parseDuration(text, "--timeout");
  if (ms < 1) throw invalidArgument("--timeout", text, "a time above zero; leave the flag out for no limit");
  return ms;
}

/** Before anything runs: a result that cannot be written would be lost. */
function checkJsonFile(path: string): void {
  const directory = dirname(resolve(path));
  if (statSync(directory, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw invalidArgument("--json-file", path, `a file in a directory that exists (there is no ${directory})`);
  }
}

export interface PlanSurroundings {
  readonly env: Environment;
  readonly stdinIsTerminal: boolean;
  /** Of the terminal, if stdout is one. */
  readonly size: { readonly columns: number; readonly rows: number } | undefined;
}

/** Between SIGTERM and SIGKILL. */
export const DEFAULT_GRACE_MS = 2000;
const DEFAULT_WAIT_MS = 600_000;
const SIZE_WITHOUT_A_TERMINAL = { columns: 80, rows: 24 };

export function planRun(argv: readonly string[], flags: RunFlags, surroundings: PlanSurroundings): RunPlan {
  const interactive = flags.interactive === true;
  const tty = flags.tty === true;
  if (interactive && tty && !surroundings.stdinIsTerminal) {
    throw new HoldfastError(
      "invalid_argument",
      "--tty with --interactive needs a terminal on stdin, and there is none",
      {
        hint: "Leave out --tty to send a pipe or a file to the command, or --interactive to only give it a terminal.",
        details: { field: "--tty" },
      },
    );
  }
  if (flags.jsonFile !== undefined) checkJsonFile(flags.jsonFile);
  const graceMs = flags.grace === undefined ? DEFAULT_GRACE_MS : parseDuration(flags.grace, "--grace");
  // What kind of terminal it is belongs to the terminal, not to the caller's environment.
  const terminal = tty ? { TERM: surroundings.env.TERM ?? "xterm" } : {};
  const { sandbox, named } = planImage(flags, argv);
  return {
    engine: parseEngineFlags(flags),
    named,
    asked: parseLimits(flags),
    sandbox: {
      ...sandbox,
      mounts: (flags.mount ?? []).map(parseMount),
      ...(flags.hostname === undefined ? {} : { hostname: flags.hostname }),
      whenOwnerDies: "end",
    },
    command: {
      argv,
      env: { ...terminal, ...parseEnvironment(flags.env ?? [], surroundings.env) },
      cwd: flags.workdir,
      user: flags.user,
      stdin: interactive ? "open" : "closed",
      pty: tty ? (surroundings.size ?? SIZE_WITHOUT_A_TERMINAL) : undefined,
      limits: { wallMs: flags.timeout === undefined ? undefined : parseTimeout(flags.timeout) },
      graceMs,
      whenReaderIsSlow: "block",
    },
    graceMs,
    waitMs: flags.wait === undefined ? DEFAULT_WAIT_MS : parseDuration(flags.wait, "--wait"),
    interactive,
    tty,
  };
}

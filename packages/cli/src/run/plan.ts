/** From flags, which are text, to what is to be run. Every mistake is named by its flag, with what would be right. */
import { statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { CommandSpec, ImageSource, MountSpec, PoolKind, SandboxSpec } from "@holdfast/engine";
import { HoldfastError, invalidArgument, parseDuration, parseSize, resolveSandboxLimits } from "@holdfast/protocol";
import { type EngineFlags, parseEngineFlags } from "../engine-options.js";
import { type Environment, parseCount, parseCpus, parseEnvironment } from "../parse-flags.js";
import { nameFlag } from "./name-flag.js";

/** As commander hands them over. */
export interface RunFlags extends EngineFlags {
  readonly image?: string;
  readonly memory?: string;
  readonly pids?: string;
  readonly cpus?: string;
  readonly disk?: string;
  readonly timeout?: string;
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

export interface RunPlan {
  readonly engine: { readonly stateDirectory?: string; readonly pool?: PoolKind };
  readonly sandbox: Partial<SandboxSpec>;
  readonly command: CommandSpec;
  readonly graceMs: number;
  readonly interactive: boolean;
  readonly tty: boolean;
}

function parseImage(text: string): ImageSource {
  return text === "host" ? { kind: "host" } : { kind: "rootfs", path: resolve(text) };
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

function parseLimits(flags: RunFlags): SandboxSpec["limits"] {
  try {
    return resolveSandboxLimits({
      memoryBytes: flags.memory === undefined ? undefined : parseSize(flags.memory, "--memory"),
      pids: flags.pids === undefined ? undefined : parseCount("--pids", flags.pids),
      cpuMillis: flags.cpus === undefined ? undefined : parseCpus(flags.cpus),
      diskBytes: flags.disk === undefined ? undefined : parseSize(flags.disk, "--disk"),
    });
  } catch (error) {
    throw nameFlag(error);
  }
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
  return {
    engine: parseEngineFlags(flags),
    sandbox: {
      image: parseImage(flags.image ?? "host"),
      limits: parseLimits(flags),
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
    interactive,
    tty,
  };
}

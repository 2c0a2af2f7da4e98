/** From flags to the command that the server is asked to start. */
import { HoldfastError, invalidArgument, parseDuration, parseSize, type StartCommandBody } from "@holdfast/protocol";
import { type Environment, parseCount, parseEnvironment } from "../parse-flags.js";
import type { ServerFlags } from "./find-server.js";

export interface ExecFlags extends ServerFlags {
  readonly interactive?: boolean;
  readonly tty?: boolean;
  readonly env?: readonly string[];
  readonly cwd?: string;
  readonly user?: string;
  readonly memory?: string;
  readonly pids?: string;
  readonly timeout?: string;
  readonly detach?: boolean;
  readonly json?: boolean;
}

export interface ExecPlan {
  readonly body: StartCommandBody;
  readonly interactive: boolean;
  readonly tty: boolean;
  readonly detach: boolean;
}

export interface ExecSurroundings {
  readonly env: Environment;
  readonly stdinIsTerminal: boolean;
  /** Of the terminal, if stdout is one. */
  readonly size: { readonly columns: number; readonly rows: number } | undefined;
}

const SIZE_WITHOUT_A_TERMINAL = { columns: 80, rows: 24 };

function refuse(message: string, field: string, hint: string): never {
  throw new HoldfastError("invalid_argument", message, { hint, details: { field } });
}

function parseLimits(flags: ExecFlags): StartCommandBody["limits"] {
  const wallMs = flags.timeout === undefined ? undefined : parseDuration(flags.timeout, "--timeout");
  if (wallMs !== undefined && wallMs < 1) {
    throw invalidArgument("--timeout", flags.timeout, "a time above zero; leave the flag out for no limit");
  }
  return {
    ...(wallMs === undefined ? {} : { wallMs }),
    ...(flags.memory === undefined ? {} : { memoryBytes: parseSize(flags.memory, "--memory") }),
    ...(flags.pids === undefined ? {} : { pids: parseCount("--pids", flags.pids) }),
  };
}

export function planExec(argv: readonly string[], flags: ExecFlags, surroundings: ExecSurroundings): ExecPlan {
  const interactive = flags.interactive === true;
  const tty = flags.tty === true;
  const detach = flags.detach === true;
  if (detach && (interactive || tty)) {
    refuse("--detach leaves no one for --interactive and --tty", "--detach", "Leave out either one or the other.");
  }
  if (interactive && tty && !surroundings.stdinIsTerminal) {
    refuse(
      "--tty with --interactive needs a terminal on stdin, and there is none",
      "--tty",
      "Leave out --tty to send a pipe or a file to the command, or --interactive to only give it a terminal.",
    );
  }
  // What kind of terminal it is belongs to the terminal, not to the caller's environment.
  const terminal = tty ? { TERM: surroundings.env.TERM ?? "xterm" } : {};
  const limits = parseLimits(flags);
  return {
    interactive,
    tty,
    detach,
    body: {
      argv,
      env: { ...terminal, ...parseEnvironment(flags.env ?? [], surroundings.env) },
      stdin: interactive ? "open" : "closed",
      ...(flags.cwd === undefined ? {} : { cwd: flags.cwd }),
      ...(flags.user === undefined ? {} : { user: flags.user }),
      ...(tty ? { pty: surroundings.size ?? SIZE_WITHOUT_A_TERMINAL } : {}),
      ...(limits === undefined || Object.keys(limits).length === 0 ? {} : { limits }),
      // Nobody reads what is detached: it must not wait for a reader.
      whenReaderIsSlow: detach ? "drop" : "block",
    },
  };
}

/**
 * How a command ended, in E2B's words. `status` is exactly what E2B would say; `error` begins with it, and goes on with
 * our sentence where there is more to know than an exit code tells.
 */
import { type CommandEnding, describeIncident, type OutOfMemory, signalNumber } from "@holdfast/protocol";
import { signalText } from "./signal-texts.js";

const SIGKILL = 9;
const SHELL_SIGNAL_BASE = 128;
const SHELL_TIMED_OUT = 124;

export interface EndFields {
  readonly exitCode: number;
  readonly exited: boolean;
  readonly status: string;
  readonly error?: string;
}

/** A shell that lost a child to the kernel exits with 137 itself; the command was killed only if it was a victim. */
function wasVictim(cause: OutOfMemory, pid: number): boolean {
  return cause.victims.length === 0 || cause.victims.some((victim) => victim.pid === pid);
}

/** The signal that ended the command's own process; undefined if it exited. */
function signalOf(ending: CommandEnding, pid: number): number | undefined {
  const { cause, exitCode } = ending;
  const fromExitCode = exitCode > SHELL_SIGNAL_BASE ? exitCode - SHELL_SIGNAL_BASE : undefined;
  switch (cause.kind) {
    case "signaled":
      return /^SIG\d+$/.test(cause.signal) ? Number(cause.signal.slice(3)) : signalNumber(cause.signal);
    case "out_of_memory":
      return fromExitCode === SIGKILL && wasVictim(cause, pid) ? SIGKILL : undefined;
    case "timed_out":
    case "canceled":
      return exitCode === SHELL_TIMED_OUT ? SIGKILL : fromExitCode;
    case "lost":
      return SIGKILL;
    case "exited":
    case "out_of_pids":
    case "out_of_disk":
      return undefined;
  }
}

function explanation(ending: CommandEnding): string {
  const { kind } = ending.cause;
  // Those two say no more than the status does.
  if (kind === "exited" || kind === "signaled")
    return ending.incidents.map((incident) => describeIncident(incident)).join(" ");
  return ending.message;
}

export function endFields(
  ending: CommandEnding,
  about: { readonly pid: number; readonly droppedBytes: number },
): EndFields {
  const signal = signalOf(ending, about.pid);
  const status = signal === undefined ? `exit status ${ending.exitCode}` : `signal: ${signalText(signal)}`;
  const dropped =
    about.droppedBytes === 0 ? "" : `${about.droppedBytes} bytes of output were dropped: nobody read them in time.`;
  const more = [explanation(ending), dropped].filter((text) => text !== "").join(" ");
  const failed = signal !== undefined || ending.exitCode !== 0;
  const error = [failed ? status : "", more].filter((text) => text !== "").join(": ");
  return {
    exitCode: signal === undefined ? ending.exitCode : -1,
    exited: signal === undefined,
    status,
    ...(error === "" ? {} : { error }),
  };
}

/** What `holdfast run` exits with: the command's own code, or the one that shells and timeout(1) use for the cause. */
import { type CommandEnding, type HoldfastError, signalNumber } from "@holdfast/protocol";

export const EXIT = {
  timedOut: 124,
  ourFailure: 125,
  cannotExecute: 126,
  notFound: 127,
  outOfMemory: 137,
  /** 128 + SIGPIPE: what a shell reports for `yes | head -1`. */
  readerGone: 141,
} as const;

/** Who cancels a command whose output nobody reads any more. */
export const READER_GONE = "the reader's end";
const KILLED = 137;

/** A canceled command ends as if by the signal that made us cancel it. */
function exitCodeOfCancel(by: string): number {
  if (by === READER_GONE) return EXIT.readerGone;
  return /^SIG[A-Z0-9]+$/.test(by) ? 128 + signalNumber(by) : KILLED;
}

export function exitCodeOfEnding(ending: CommandEnding): number {
  const { cause } = ending;
  switch (cause.kind) {
    case "timed_out":
      return EXIT.timedOut;
    case "out_of_memory":
      return EXIT.outOfMemory;
    case "canceled":
      return exitCodeOfCancel(cause.by);
    case "lost":
      return EXIT.ourFailure;
    case "exited":
    case "signaled":
    case "out_of_pids":
    case "out_of_disk":
      return ending.exitCode;
  }
}

/** 126 and 127 are about the command; everything else that is thrown is about us or the way we were called. */
export function exitCodeOfError(error: HoldfastError): number {
  const { exitCode } = error.details;
  return error.code === "command_failed_to_start" && typeof exitCode === "number" ? exitCode : EXIT.ourFailure;
}

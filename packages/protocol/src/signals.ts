/** Signal names and numbers as Linux has them on every architecture we run on. */
import type { Signal } from "./causes.js";
import { invalidArgument } from "./errors.js";

const NAMES = (
  "SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE SIGALRM SIGTERM SIGSTKFLT " +
  "SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS"
).split(" ");
/** Other names for the same numbers. */
const ALIASES: Readonly<Record<string, number>> = { SIGIOT: 6, SIGPOLL: 29 };

export function signalName(number: number): Signal {
  return (NAMES[number - 1] as Signal | undefined) ?? `SIG${number}`;
}

export function signalNumber(signal: string | number): number {
  if (typeof signal === "number") {
    if (Number.isInteger(signal) && signal >= 1 && signal <= 64) return signal;
  } else {
    const number = NAMES.indexOf(signal) + 1 || ALIASES[signal];
    if (number !== undefined) return number;
  }
  throw invalidArgument("signal", signal, "a signal's name such as SIGTERM, or its number");
}

/** Signal names and numbers as Linux has them on every architecture we run on. */
import { constants } from "node:os";
import type { Signal } from "./causes.js";
import { invalidArgument } from "./errors.js";

const byNumber = new Map<number, Signal>();
for (const [name, number] of Object.entries(constants.signals)) {
  // Aliases (SIGIOT, SIGPOLL) come after the name everyone knows.
  if (!byNumber.has(number)) byNumber.set(number, name as Signal);
}

export function signalName(number: number): Signal {
  return byNumber.get(number) ?? `SIG${number}`;
}

export function signalNumber(signal: string | number): number {
  if (typeof signal === "number") {
    if (Number.isInteger(signal) && signal >= 1 && signal <= 64) return signal;
  } else {
    const number = (constants.signals as Record<string, number>)[signal];
    if (number !== undefined) return number;
  }
  throw invalidArgument("signal", signal, "a signal's name such as SIGTERM, or its number");
}

/** What holdfast itself says on stderr, apart from the command's own words. */
import { HoldfastError } from "@holdfast/protocol";
import { coloursFor } from "./colours.js";

export function note(text: string): void {
  const { dim } = coloursFor(process.stderr);
  process.stderr.write(`${dim("holdfast:")} ${text}\n`);
}

/** What happened, then what to do. The stack is for whoever asks for it. */
export function noteError(reason: unknown): void {
  const error = HoldfastError.from(reason);
  const { red } = coloursFor(process.stderr);
  process.stderr.write(`${red("holdfast:")} ${error.toText().replaceAll("\n", "\n  ")}\n`);
  if ((process.env.HOLDFAST_DEBUG ?? "") !== "") process.stderr.write(`${stackOf(reason)}\n`);
}

function stackOf(reason: unknown): string {
  if (!(reason instanceof Error)) return String(reason);
  const cause = reason.cause === undefined ? "" : `\ncaused by ${stackOf(reason.cause)}`;
  return (reason.stack ?? reason.message) + cause;
}

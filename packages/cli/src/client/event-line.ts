/** One event, one line. */
import { printable, type SandboxEvent } from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";
import { localTime } from "../text/times.js";

const KIND_WIDTH = "command_started".length;

/** `brief` leaves out whose it is, where that is clear. */
export function eventLine(event: SandboxEvent, colours: Colours, options: { readonly brief?: boolean } = {}): string {
  const when = colours.dim(`${String(event.seq).padStart(5)}  ${localTime(event.at)}`);
  const whose = options.brief === true ? "" : `${event.sandboxId}  `;
  return `${when}  ${whose}${printable(event.kind).padEnd(KIND_WIDTH)}  ${printable(event.message)}`.trimEnd();
}

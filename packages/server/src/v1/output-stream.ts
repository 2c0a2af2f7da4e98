/** A command's output as lines, to its end or to the end of the sandbox. */
import { type CommandEnding, HoldfastError, type OutputLine } from "@holdfast/protocol";
import type { Attachment, Caller, LiveSandbox, Sandboxes } from "../sandboxes/types.js";
import { whyGone } from "./gone.js";
import { keepLinesAlive, writeLine } from "./line-stream.js";
import type { ResponseStream } from "./response-stream.js";
import { until, valueUntil } from "./until.js";
import { outputLine } from "./views.js";

/** What has arrived from a sandbox that ends is still read; one that is frozen says nothing more. */
const REST_MS = 300;
/** How long an ended sandbox has to say how the command ended. */
const ENDING_MS = 1000;

export interface OutputSource {
  readonly sandboxes: Sandboxes;
  readonly caller: Caller;
  readonly live: LiveSandbox;
  readonly attachment: Attachment;
  readonly first?: OutputLine;
  /** Default true; false tells the ending only. */
  readonly withData?: boolean;
}

/** Aborts a while after the given signal; `[Symbol.dispose]` forgets it. */
function laterThan(signal: AbortSignal, ms: number): { readonly signal: AbortSignal } & Disposable {
  const later = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const start = () => {
    timer = setTimeout(() => later.abort(), ms);
  };
  if (signal.aborted) start();
  else signal.addEventListener("abort", start, { once: true });
  return {
    signal: later.signal,
    [Symbol.dispose]: () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", start);
    },
  };
}

async function endingOf(stream: ResponseStream, source: OutputSource): Promise<CommandEnding | undefined> {
  const { sandboxes, caller, live, attachment } = source;
  const ending = await valueUntil(attachment.ended, [stream.closed, live.gone]);
  if (ending !== undefined || stream.closed.aborted) return ending;
  // A sandbox that ends, or stops with its files only, ends its commands first. One that is frozen does not.
  const known = await Promise.race([attachment.ended, whyGone(sandboxes, caller, live.id)]);
  if (!(known instanceof HoldfastError)) return known;
  if (known.code !== "sandbox_ended") throw known;
  const lastWord = await valueUntil(attachment.ended, [stream.closed, AbortSignal.timeout(ENDING_MS)]);
  if (lastWord === undefined && !stream.closed.aborted) throw known;
  return lastWord;
}

export async function sendOutput(stream: ResponseStream, source: OutputSource): Promise<void> {
  const { live, attachment, first, withData = true } = source;
  try {
    keepLinesAlive(stream);
    if (first !== undefined && !(await writeLine(stream, first))) return;
    if (withData) {
      using rest = laterThan(live.gone, REST_MS);
      for await (const event of until(attachment.output(), [stream.closed, rest.signal])) {
        if (!(await writeLine(stream, outputLine(event)))) return;
        attachment.delivered(event);
      }
    }
    const ending = await endingOf(stream, source);
    if (ending !== undefined) await writeLine(stream, { type: "ended", ending } satisfies OutputLine);
  } finally {
    attachment.detach();
  }
}

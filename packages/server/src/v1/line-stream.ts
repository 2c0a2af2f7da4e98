/** Newline-delimited JSON, as an answer that goes on. */
import type { ErrorLine } from "@holdfast/protocol";
import type { Logger } from "pino";
import { errorForCaller, logFault } from "./errors.js";
import type { ResponseStream } from "./response-stream.js";

const KEEPALIVE_MS = 15_000;

export function beginLines(stream: ResponseStream): void {
  stream.begin({ "content-type": "application/x-ndjson" });
}

/** For streams that may be silent for long: so that both sides, and whatever is between them, know that they are there. */
export function keepLinesAlive(stream: ResponseStream): void {
  stream.keepAlive(`${JSON.stringify({ type: "keepalive" })}\n`, KEEPALIVE_MS);
}

export async function writeLine<Line extends object>(stream: ResponseStream, line: Line): Promise<boolean> {
  return stream.write(`${JSON.stringify(line)}\n`);
}

/** Sends lines until they end. What fails on the way is the last line. */
export async function sendLines(stream: ResponseStream, log: Logger, send: () => Promise<void>): Promise<void> {
  try {
    await send();
  } catch (reason) {
    logFault(log, reason, { stream: "lines" });
    const line: ErrorLine = { type: "error", error: errorForCaller(reason).toJSON() };
    await writeLine(stream, line);
  } finally {
    stream.end();
  }
}

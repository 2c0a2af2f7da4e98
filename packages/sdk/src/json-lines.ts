/** Newline-delimited JSON, whatever the pieces are that it arrives in. */
import { type ErrorLine, HoldfastError } from "@holdfast/protocol";
import { errorFromBody } from "./rebuild-error.js";

/** No line of the server's is nearly as long. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;
const NEWLINE = 0x0a;

function joined(pieces: readonly Uint8Array[], last: Uint8Array): Uint8Array {
  if (pieces.length === 0) return last;
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, last.length));
  let offset = 0;
  for (const piece of [...pieces, last]) {
    all.set(piece, offset);
    offset += piece.length;
  }
  return all;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new HoldfastError("engine_fault", `the server sent a line that is not JSON: ${text.slice(0, 100)}`, {
      hint: "Does the address lead to a Holdfast server?",
      cause: error,
    });
  }
}

/** A line that has no end was cut off, and is left out. */
async function* jsonLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<unknown> {
  // Only whole lines are decoded: a character that lies in two chunks stays one.
  const decoder = new TextDecoder();
  let pieces: Uint8Array[] = [];
  let pendingBytes = 0;
  for await (const chunk of chunks) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      const text = decoder.decode(joined(pieces, chunk.subarray(start, end)));
      pieces = [];
      pendingBytes = 0;
      start = end + 1;
      if (text.trim() !== "") yield parse(text);
    }
    if (start === chunk.length) continue;
    pieces.push(chunk.subarray(start));
    pendingBytes += chunk.length - start;
    if (pendingBytes > MAX_LINE_BYTES) throw new HoldfastError("engine_fault", "the server sent a line without end");
  }
}

/** The lines, without those that only keep the connection alive. A line that says `error` is thrown. */
export async function* lines<Line extends object>(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<Exclude<Line, ErrorLine | { readonly type: "keepalive" }>> {
  for await (const value of jsonLines(chunks)) {
    const line = value as { readonly type?: unknown; readonly error?: unknown };
    if (line.type === "keepalive") continue;
    if (line.type === "error") {
      throw (
        errorFromBody(line.error) ??
        new HoldfastError("engine_fault", `the server reported: ${JSON.stringify(line.error)}`)
      );
    }
    yield line as Exclude<Line, ErrorLine | { readonly type: "keepalive" }>;
  }
}

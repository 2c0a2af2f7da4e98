/** `text/event-stream`, whatever the pieces are that it arrives in. */
import { HoldfastError } from "@holdfast/protocol";

const MAX_EVENT_CHARACTERS = 16 * 1024 * 1024;

export interface ServerSentEvent {
  readonly id: string | undefined;
  /** `message` unless the server says otherwise. */
  readonly type: string;
  /** Empty if the server only told a cursor. */
  readonly data: string;
}

/** Lines end with CR, LF or both; the two may come in different chunks. */
async function* textLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let pending = "";
  let skipLineFeed = false;
  for await (const chunk of chunks) {
    let text = decoder.decode(chunk, { stream: true });
    if (skipLineFeed && text !== "") {
      if (text.startsWith("\n")) text = text.slice(1);
      skipLineFeed = false;
    }
    pending += text;
    let start = 0;
    for (const match of pending.matchAll(/\r\n|\r|\n/g)) {
      yield pending.slice(start, match.index);
      start = match.index + match[0].length;
      skipLineFeed = match[0] === "\r" && start === pending.length;
    }
    pending = pending.slice(start);
    if (pending.length > MAX_EVENT_CHARACTERS) throw tooLong();
  }
}

function tooLong(): HoldfastError {
  return new HoldfastError("engine_fault", "the server sent an event without end");
}

/** An event that has no end was cut off, and is left out. */
export async function* serverSentEvents(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<ServerSentEvent> {
  let id: string | undefined;
  let isCursor = false;
  let type = "message";
  let data: string[] = [];
  let characters = 0;
  for await (const line of textLines(chunks)) {
    if (line === "") {
      if (data.length > 0 || isCursor) yield { id, type, data: data.join("\n") };
      isCursor = false;
      type = "message";
      data = [];
      characters = 0;
      continue;
    }
    const colon = line.indexOf(":");
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    // A line that begins with a colon is a comment, and has an empty field.
    if (field === "data") data.push(value);
    else if (field === "event") type = value === "" ? "message" : value;
    else if (field === "id" && !value.includes("\0")) {
      id = value;
      isCursor = true;
    }
    characters += value.length;
    if (characters > MAX_EVENT_CHARACTERS) throw tooLong();
  }
}

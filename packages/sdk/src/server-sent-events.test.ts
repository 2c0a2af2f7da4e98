import { describe, expect, test } from "vitest";
import { type ServerSentEvent, serverSentEvents } from "./server-sent-events.js";
import { all } from "./testing/use-http-server.js";

async function parsed(text: string, size: number): Promise<ServerSentEvent[]> {
  const bytes = new TextEncoder().encode(text);
  async function* pieces(): AsyncGenerator<Uint8Array> {
    for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
  }
  return all(serverSentEvents(pieces()));
}

const MESSAGE = { id: undefined, type: "message" };

describe("server-sent events", () => {
  test.each([1, 2, 3, 1000])("are the same in pieces of %i bytes, whatever ends a line", async (size) => {
    const text = ": hello\n\nid: 7\r\ndata: ä🦀\r\n\r\ndata: one\rdata:two\r\revent: end\ndata: {}\n\n";
    expect(await parsed(text, size)).toEqual([
      { id: "7", type: "message", data: "ä🦀" },
      { id: "7", type: "message", data: "one\ntwo" },
      { id: "7", type: "end", data: "{}" },
    ]);
  });

  test("tell a cursor without an event", async () => {
    expect(await parsed("retry: 1000\nid: 41\n\n", 5)).toEqual([{ id: "41", type: "message", data: "" }]);
  });

  test("leave out what was cut off", async () => {
    expect(await parsed("data: 1\n\ndata: 2\n", 100)).toEqual([{ ...MESSAGE, data: "1" }]);
  });

  test("know fields without a value and ignore those they do not know", async () => {
    expect(await parsed("data\nnothing: 1\n\n", 100)).toEqual([{ ...MESSAGE, data: "" }]);
  });
});

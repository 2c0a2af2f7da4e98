import type { OutputLine } from "@holdfast/protocol";
import { describe, expect, test } from "vitest";
import { lines } from "./json-lines.js";
import { all } from "./testing/use-http-server.js";

async function* pieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
}

async function parsed(text: string, size: number): Promise<unknown[]> {
  return all(lines(pieces(new TextEncoder().encode(text), size)));
}

describe("newline-delimited JSON", () => {
  test.each([1, 2, 3, 7, 1000])("is the same in pieces of %i bytes", async (size) => {
    const values = [{ name: "größer 🦀 漢字" }, { n: 2 }, { "": "\u2028" }];
    expect(await parsed(values.map((value) => `${JSON.stringify(value)}\n`).join(""), size)).toEqual(values);
  });

  test("leaves out a line that was cut off", async () => {
    expect(await parsed('{"n":1}\n{"n":2', 4)).toEqual([{ n: 1 }]);
  });

  test("leaves out empty lines and lines that keep the connection alive", async () => {
    expect(await parsed('\n{"type":"keepalive"}\n \n{"n":1}\n', 5)).toEqual([{ n: 1 }]);
  });

  test("throws the error that a line reports", async () => {
    const text = `{"n":1}\n${JSON.stringify({ type: "error", error: { code: "sandbox_paused", message: "it was paused", hint: "Resume it." } })}\n`;
    const received = lines<OutputLine>(pieces(new TextEncoder().encode(text), 10));
    await received.next();
    await expect(received.next()).rejects.toMatchObject({ code: "sandbox_paused", hint: "Resume it." });
  });

  test("refuses a line that is not JSON", async () => {
    await expect(parsed("<html>\n", 3)).rejects.toMatchObject({ code: "engine_fault" });
  });
});

import { describe, expect, it } from "vitest";
import { MAX_LINE_CHARS, OutputLines } from "./output-lines.js";

function linesOf(...chunks: (string | Uint8Array)[]): string[] {
  const lines: string[] = [];
  const output = new OutputLines((line) => lines.push(line));
  for (const chunk of chunks) output.push(typeof chunk === "string" ? Buffer.from(chunk) : chunk);
  output.end();
  return lines;
}

describe("OutputLines", () => {
  it("gives each line once it is whole, and the last one at the end", () => {
    expect(linesOf("a\nb", "c\n\n", "d")).toEqual(["a", "bc", "", "d"]);
  });

  it("leaves of a progress bar what stands there at the end", () => {
    expect(linesOf("10 %\r20 %", "\r30 %\r", "\r100 %\ndone\n")).toEqual(["100 %", "done"]);
    expect(linesOf("10 %\r20 %\r")).toEqual(["20 %"]);
  });

  it("takes a carriage return before a newline for part of the newline, wherever it is cut", () => {
    expect(linesOf("a\r\nb\r", "\nc\r\r\n")).toEqual(["a", "b", "c"]);
  });

  it("cuts a line that is too long, between characters", () => {
    const lines = linesOf(`${"x".repeat(MAX_LINE_CHARS - 1)}\u{1F600}y`, `${"z".repeat(MAX_LINE_CHARS)}\n`);
    expect(lines.every((line) => line.length <= MAX_LINE_CHARS && Buffer.from(line).toString() === line)).toBe(true);
    expect(lines.join("")).toBe(`${"x".repeat(MAX_LINE_CHARS - 1)}\u{1F600}y${"z".repeat(MAX_LINE_CHARS)}`);
  });

  it("puts characters together that come in pieces, and replaces what is none", () => {
    const bytes = Buffer.from("ä€\u{1F600}\n");
    expect(linesOf(...[...bytes].map((byte) => Uint8Array.of(byte)))).toEqual(["ä€\u{1F600}"]);
    expect(linesOf(Uint8Array.of(0x61, 0xff, 0xfe, 0x62, 0x0a, 0xe2))).toEqual(["a\uFFFD\uFFFDb", "\uFFFD"]);
  });

  it("says where bytes are missing", () => {
    const lines: string[] = [];
    const output = new OutputLines((line) => lines.push(line));
    output.push(Buffer.from("half"));
    output.gap(7);
    output.push(Buffer.from("rest\n"));
    expect(lines).toEqual(["half", "[7 bytes of output are not kept]", "rest"]);
  });
});

import { describe, expect, it } from "vitest";
import {
  answerLocally,
  encodeQuestion,
  errorAnswer,
  isTruncated,
  matchAnswer,
  parseQuestion,
  type Question,
  truncatedAnswer,
} from "./dns-message.js";

const encodeName = (name: string): Buffer =>
  Buffer.concat([
    ...(name === "" ? [] : name.split(".")).map((label) =>
      Buffer.concat([Buffer.from([label.length]), Buffer.from(label, "latin1")]),
    ),
    Buffer.from([0]),
  ]);

interface Parts {
  id?: number;
  flags?: number;
  counts?: number[];
  name?: string | Buffer;
  type?: number;
  class?: number;
  rest?: Buffer;
}

function message(parts: Parts = {}): Buffer {
  const head = Buffer.alloc(12);
  head.writeUInt16BE(parts.id ?? 0x1234, 0);
  head.writeUInt16BE(parts.flags ?? 0x0100, 2);
  for (const [index, count] of (parts.counts ?? [1, 0, 0, 0]).entries()) head.writeUInt16BE(count, 4 + 2 * index);
  const tail = Buffer.alloc(4);
  tail.writeUInt16BE(parts.type ?? 1, 0);
  tail.writeUInt16BE(parts.class ?? 1, 2);
  const name =
    typeof parts.name === "string" || parts.name === undefined ? encodeName(parts.name ?? "example.com") : parts.name;
  return Buffer.concat([head, name, tail, parts.rest ?? Buffer.alloc(0)]);
}

function opt(udpBytes: number, ttl = 0, data = Buffer.alloc(0)): Buffer {
  const record = Buffer.alloc(11);
  record.writeUInt16BE(41, 1);
  record.writeUInt16BE(udpBytes, 3);
  record.writeUInt32BE(ttl, 5);
  record.writeUInt16BE(data.length, 9);
  return Buffer.concat([record, data]);
}

function question(parts: Parts = {}): Question {
  const parsed = parseQuestion(message(parts));
  if ("refusal" in parsed) throw new Error("refused");
  return parsed;
}

function rcodeOf(bytes: Buffer): number | undefined {
  const parsed = parseQuestion(bytes);
  if (!("refusal" in parsed)) return -1;
  return parsed.refusal === undefined ? undefined : parsed.refusal.readUInt16BE(2) & 15;
}

describe("a question", () => {
  it("is taken apart", () => {
    expect(question({ name: "Example.COM", type: 16 })).toMatchObject({
      id: 0x1234,
      name: "example.com",
      type: 16,
      class: 1,
      edns: undefined,
    });
    expect(question({ name: "" }).name).toBe("");
    expect(question({ name: "_dmarc.x-y.example" }).name).toBe("_dmarc.x-y.example");
  });

  it.each([
    ["several questions", message({ counts: [2, 0, 0, 0] })],
    ["no question", message({ counts: [0, 0, 0, 0] })],
    ["an answer in it", message({ counts: [1, 1, 0, 0] })],
    ["an authority in it", message({ counts: [1, 0, 1, 0] })],
    ["two additional records", message({ counts: [1, 0, 0, 2] })],
    ["something behind it", message({ rest: Buffer.from("x") })],
    ["a pointer", message({ name: Buffer.from([0xc0, 12]) })],
    ["a pointer after a label", message({ name: Buffer.from([1, 0x61, 0xc0, 12]) })],
    [
      "a label of 64 bytes",
      message({ name: Buffer.concat([Buffer.from([64]), Buffer.alloc(64, "a"), Buffer.from([0])]) }),
    ],
    ["a name without end", message({ name: Buffer.alloc(200, Buffer.from([1, 0x61])) })],
    ["a name of 300 bytes", message({ name: Array.from({ length: 150 }, () => "a").join(".") })],
    ["a NUL in a name", message({ name: "a\0b.example" })],
    ["a line break in a name", message({ name: "a\nb.example" })],
    ["a blank in a name", message({ name: "a b.example" })],
    ["an escape in a name", message({ name: "a\x1bb.example" })],
    ["a byte above ASCII in a name", message({ name: "\xe9.example" })],
    ["an additional record that is not OPT", message({ counts: [1, 0, 0, 1], rest: Buffer.alloc(11) })],
    ["an OPT record that is cut off", message({ counts: [1, 0, 0, 1], rest: opt(1232).subarray(0, 10) })],
    [
      "an OPT record that runs past the end",
      message({ counts: [1, 0, 0, 1], rest: opt(1232, 0, Buffer.alloc(4)).subarray(0, 13) }),
    ],
    ["no type and class", message().subarray(0, -2)],
  ])("with %s is refused", (_what, bytes) => {
    expect(rcodeOf(bytes)).toBe(1);
  });

  it("of another kind is not implemented", () => {
    expect(rcodeOf(message({ flags: 0x2800 }))).toBe(4);
  });

  it("that is an answer, or too short, gets no answer", () => {
    expect(rcodeOf(message({ flags: 0x8180 }))).toBeUndefined();
    expect(rcodeOf(Buffer.alloc(11))).toBeUndefined();
    expect(rcodeOf(Buffer.alloc(0))).toBeUndefined();
  });

  it("never throws, whatever its bytes", () => {
    for (let round = 0; round < 20_000; round++) {
      const bytes = Buffer.from(message({ counts: [1, 0, 0, 1], rest: opt(1232, 0x8000, Buffer.alloc(8, 1)) }));
      for (let flips = 0; flips < 3; flips++)
        bytes[Math.floor(Math.random() * bytes.length)] = Math.floor(Math.random() * 256);
      parseQuestion(bytes.subarray(0, Math.floor(Math.random() * (bytes.length + 1))));
    }
  });

  it("goes out under another id, with the client's EDNS size and none of its options", () => {
    const asked = question({
      counts: [1, 0, 0, 1],
      rest: opt(1232, 0x8000, Buffer.from("0008000400010000", "hex")),
      flags: 0x0130,
    });
    expect(asked.edns).toEqual({ udpBytes: 1232, dnssecOk: true });
    expect(encodeQuestion(asked, 0xabcd)).toEqual(
      message({ id: 0xabcd, flags: 0x0130, counts: [1, 0, 0, 1], rest: opt(1232, 0x8000) }),
    );
    expect(question({ counts: [1, 0, 0, 1], rest: opt(0) }).edns?.udpBytes).toBe(512);
    expect(question({ counts: [1, 0, 0, 1], rest: opt(65_535) }).edns?.udpBytes).toBe(4096);
  });
});

describe("an answer", () => {
  const asked = question({ name: "eXample.com" });
  const record = Buffer.from("c00c00010001000000 3c0004c0000201".replace(" ", ""), "hex");
  const answer = (parts: Parts = {}) =>
    message({ id: 7, flags: 0x8180, counts: [1, 1, 0, 0], rest: record, name: "example.COM", ...parts });

  it("comes back under the client's id and in its spelling", () => {
    expect(matchAnswer(asked, 7, answer())).toEqual(answer({ id: 0x1234, name: "eXample.com" }));
  });

  it.each([
    ["another id", answer({ id: 8 })],
    ["another name", answer({ name: "example.org" })],
    ["another type", answer({ type: 28 })],
    ["another class", answer({ class: 3 })],
    ["a question instead", answer({ flags: 0x0100 })],
    ["several questions", answer({ counts: [2, 1, 0, 0] })],
    ["no question and no error", answer({ counts: [0, 0, 0, 0] })],
    ["nothing", Buffer.alloc(0)],
    ["half a header", Buffer.alloc(7)],
  ])("with %s is not believed", (_what, bytes) => {
    expect(matchAnswer(asked, 7, bytes)).toBeUndefined();
  });

  it("that refuses without repeating the question is passed on", () => {
    const head = Buffer.from("000781050000000000000000", "hex");
    expect(matchAnswer(asked, 7, head)?.readUInt16BE(2)).toBe(0x8185);
  });

  it("can be marked as cut off", () => {
    expect(isTruncated(truncatedAnswer(asked))).toBe(true);
    expect(isTruncated(errorAnswer(asked, 2))).toBe(false);
  });
});

describe("what is answered here", () => {
  it("localhost is this host", () => {
    for (const name of ["localhost", "LocalHost", "a.localhost"]) {
      expect(answerLocally(question({ name }))?.subarray(-4)).toEqual(Buffer.from([127, 0, 0, 1]));
    }
    expect(answerLocally(question({ name: "notlocalhost" }))).toBeUndefined();
    expect(answerLocally(question({ name: "localhost", type: 16 }))?.readUInt16BE(6)).toBe(0);
  });

  it("there are no IPv6 addresses", () => {
    const answer = answerLocally(question({ type: 28 }));
    expect([answer?.readUInt16BE(2), answer?.readUInt16BE(6)]).toEqual([0x8180, 0]);
  });

  it("other classes than the Internet's are not implemented", () => {
    expect(answerLocally(question({ class: 3 }))?.readUInt16BE(2)).toBe(0x8184);
  });
});

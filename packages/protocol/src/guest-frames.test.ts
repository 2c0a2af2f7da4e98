import { describe, expect, it } from "vitest";
import { encodeFields, encodeFrame, Fields, type Frame, FrameReader, ProtocolError } from "./guest-frames.js";
import { FIELD, FRAME, HEADER_BYTES, MAX_PAYLOAD_BYTES } from "./guest-wire.js";

const frames = [
  encodeFrame(FRAME.HELLO, 0, 0, encodeFields([[FIELD.VERSION, 1]])),
  encodeFrame(FRAME.EOF, 1, 7, new Uint8Array(0)),
  encodeFrame(FRAME.DATA, 2, 0x7fffffff, Buffer.alloc(100_000, 0xab)),
  encodeFrame(FRAME.DONE, 0, 1, new Uint8Array(0)),
];

function readAll(pieces: Iterable<Buffer>): Frame[] {
  const reader = new FrameReader();
  const read: Frame[] = [];
  for (const piece of pieces) read.push(...reader.push(piece));
  return read;
}

function cut(bytes: Buffer, size: number): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size));
  return pieces;
}

describe("FrameReader", () => {
  it.each([1, 2, 5, 11, 12, 13, 4096, 1_000_000])("reads the same frames from pieces of %d bytes", (size) => {
    const read = readAll(cut(Buffer.concat(frames), size));
    expect(read.map((frame) => [frame.type, frame.channel, frame.stream, frame.payload.length])).toEqual([
      [FRAME.HELLO, 0, 0, 13],
      [FRAME.EOF, 1, 7, 0],
      [FRAME.DATA, 2, 0x7fffffff, 100_000],
      [FRAME.DONE, 0, 1, 0],
    ]);
    expect(read[2]?.payload.every((byte) => byte === 0xab)).toBe(true);
  });

  it("hands out a frame without payload as soon as its header is whole", () => {
    const reader = new FrameReader();
    const frame = encodeFrame(FRAME.EOF, 1, 7, new Uint8Array(0));
    expect([...reader.push(frame.subarray(0, 5))]).toHaveLength(0);
    expect([...reader.push(frame.subarray(5))]).toHaveLength(1);
  });

  it("refuses a length above the limit before it keeps a byte of it", () => {
    const header = Buffer.alloc(HEADER_BYTES);
    header.writeUInt32LE(MAX_PAYLOAD_BYTES + 1, 0);
    expect(() => readAll([header])).toThrow(ProtocolError);
  });

  it("refuses unknown flags and stream ids out of range", () => {
    const flags = Buffer.alloc(HEADER_BYTES);
    flags.writeUInt16LE(1, 6);
    expect(() => readAll([flags])).toThrow("flags");
    const stream = Buffer.alloc(HEADER_BYTES);
    stream.writeUInt32LE(0x80000000, 8);
    expect(() => readAll([stream])).toThrow("stream id");
  });

  it("never holds more than one frame of random bytes", () => {
    for (let seed = 0; seed < 200; seed++) {
      const noise = Buffer.from(
        Array.from({ length: 4096 }, (_, i) => (Math.imul(i + 1, 2654435761 + seed * 97) >>> 13) & 0xff),
      );
      try {
        for (const frame of readAll(cut(noise, 17)))
          expect(frame.payload.length).toBeLessThanOrEqual(MAX_PAYLOAD_BYTES);
      } catch (error) {
        expect(error).toBeInstanceOf(ProtocolError);
      }
    }
  });
});

describe("Fields", () => {
  it("gives back what was put in, repeated fields in order", () => {
    const fields = new Fields(
      encodeFields([
        [FIELD.ARG, "sh"],
        [FIELD.ARG, "-c"],
        [FIELD.PID, 12],
        [FIELD.MTIME_NS, 2n ** 60n],
        [FIELD.XATTR, Buffer.from([1, 0, 2])],
        [FIELD.CWD, undefined],
      ]),
    );
    expect(fields.texts(FIELD.ARG)).toEqual(["sh", "-c"]);
    expect(fields.number(FIELD.PID)).toBe(12);
    expect(fields.bigint(FIELD.MTIME_NS)).toBe(2n ** 60n);
    expect(fields.number(FIELD.MTIME_NS)).toBeUndefined();
    expect(fields.bytes(FIELD.XATTR)).toEqual(Buffer.from([1, 0, 2]));
    expect(fields.text(FIELD.CWD)).toBeUndefined();
  });

  it("refuses a field that is cut off or runs past its message", () => {
    const whole = encodeFields([[FIELD.PATH, "/tmp"]]);
    expect(() => new Fields(whole.subarray(0, 3))).toThrow(ProtocolError);
    expect(() => new Fields(whole.subarray(0, whole.length - 1))).toThrow(ProtocolError);
  });

  it("treats a number of the wrong size as absent", () => {
    expect(new Fields(encodeFields([[FIELD.PID, "12"]])).number(FIELD.PID)).toBeUndefined();
  });
});

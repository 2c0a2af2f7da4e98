/**
 * Frames of the guest protocol, to and from bytes. What comes from a guest is hostile: every length is checked before
 * anything is copied or kept.
 */
import { type FieldTag, HEADER_BYTES, MAX_PAYLOAD_BYTES } from "./guest-wire.js";

export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
}

export interface Frame {
  readonly type: number;
  readonly channel: number;
  readonly stream: number;
  readonly payload: Buffer;
}

export type FieldValue = string | number | bigint | Uint8Array;
export type FieldList = ReadonlyArray<readonly [FieldTag, FieldValue | undefined]>;

const MAX_STREAM = 0x7fffffff;
const FIELD_HEAD_BYTES = 5;

export function encodeFrame(type: number, channel: number, stream: number, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payload.length);
  writeHeader(frame, type, channel, stream, payload.length);
  frame.set(payload, HEADER_BYTES);
  return frame;
}

/** Only the header, for a payload that is written by itself: large data is not copied for the sake of 12 bytes. */
export function encodeHeader(type: number, channel: number, stream: number, payloadBytes: number): Buffer {
  const header = Buffer.allocUnsafe(HEADER_BYTES);
  writeHeader(header, type, channel, stream, payloadBytes);
  return header;
}

function writeHeader(target: Buffer, type: number, channel: number, stream: number, payloadBytes: number): void {
  if (payloadBytes > MAX_PAYLOAD_BYTES) throw new ProtocolError(`a frame of ${payloadBytes} bytes is over the limit`);
  target.writeUInt32LE(payloadBytes, 0);
  target.writeUInt8(type, 4);
  target.writeUInt8(channel, 5);
  target.writeUInt16LE(0, 6);
  target.writeUInt32LE(stream, 8);
}

/** Fields with an undefined value are left out. */
export function encodeFields(fields: FieldList): Buffer {
  const parts: Buffer[] = [];
  for (const [tag, value] of fields) {
    if (value === undefined) continue;
    const bytes = encodeValue(value);
    const head = Buffer.allocUnsafe(FIELD_HEAD_BYTES);
    head.writeUInt8(tag, 0);
    head.writeUInt32LE(bytes.length, 1);
    parts.push(head, bytes);
  }
  return Buffer.concat(parts);
}

function encodeValue(value: FieldValue): Buffer {
  if (typeof value === "string") return Buffer.from(value, "utf8");
  if (typeof value === "number" || typeof value === "bigint") {
    const bytes = Buffer.allocUnsafe(8);
    bytes.writeBigUInt64LE(BigInt(value));
    return bytes;
  }
  return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
}

/** The fields of one message. Numbers and texts are taken out by tag; what is absent or malformed is undefined. */
export class Fields {
  readonly #values = new Map<number, Buffer[]>();

  constructor(payload: Buffer) {
    let cursor = 0;
    while (cursor < payload.length) {
      if (payload.length - cursor < FIELD_HEAD_BYTES) throw new ProtocolError("a field is cut off");
      const tag = payload.readUInt8(cursor);
      const length = payload.readUInt32LE(cursor + 1);
      const start = cursor + FIELD_HEAD_BYTES;
      if (length > payload.length - start) throw new ProtocolError("a field runs past its message");
      const values = this.#values.get(tag);
      const value = payload.subarray(start, start + length);
      if (values === undefined) this.#values.set(tag, [value]);
      else values.push(value);
      cursor = start + length;
    }
  }

  bytes(tag: FieldTag): Buffer | undefined {
    return this.#values.get(tag)?.[0];
  }

  allBytes(tag: FieldTag): readonly Buffer[] {
    return this.#values.get(tag) ?? [];
  }

  bigint(tag: FieldTag): bigint | undefined {
    const value = this.bytes(tag);
    return value?.length === 8 ? value.readBigUInt64LE() : undefined;
  }

  /** A number that JavaScript can hold exactly; anything larger is as good as absent. */
  number(tag: FieldTag): number | undefined {
    const value = this.bigint(tag);
    return value === undefined || value > BigInt(Number.MAX_SAFE_INTEGER) ? undefined : Number(value);
  }

  text(tag: FieldTag): string | undefined {
    return this.bytes(tag)?.toString("utf8");
  }

  texts(tag: FieldTag): string[] {
    return this.allBytes(tag).map((value) => value.toString("utf8"));
  }
}

interface FrameHead {
  readonly type: number;
  readonly channel: number;
  readonly stream: number;
  readonly length: number;
}

function parseHeader(bytes: Buffer, at: number): FrameHead {
  const length = bytes.readUInt32LE(at);
  const stream = bytes.readUInt32LE(at + 8);
  if (length > MAX_PAYLOAD_BYTES) throw new ProtocolError(`a frame of ${length} bytes is over the limit`);
  if (bytes.readUInt16LE(at + 6) !== 0) throw new ProtocolError("a frame has unknown flags");
  if (stream > MAX_STREAM) throw new ProtocolError("a frame has a stream id out of range");
  return { type: bytes.readUInt8(at + 4), channel: bytes.readUInt8(at + 5), stream, length };
}

/**
 * Cuts a byte stream into frames. Holds at most one frame, in one buffer of the size its header announced, however small
 * the pieces are in which it arrives.
 */
export class FrameReader {
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  #head: FrameHead | undefined;
  #payload = Buffer.alloc(0);
  #payloadBytes = 0;

  *push(chunk: Buffer): Generator<Frame> {
    let at = 0;
    while (at < chunk.length) {
      if (this.#head === undefined) {
        if (this.#headerBytes === 0 && chunk.length - at >= HEADER_BYTES) {
          const head = parseHeader(chunk, at);
          const end = at + HEADER_BYTES + head.length;
          if (end <= chunk.length) {
            // The usual case: a whole frame in one chunk is handed out without a copy.
            const payload = chunk.subarray(at + HEADER_BYTES, end);
            at = end;
            yield { type: head.type, channel: head.channel, stream: head.stream, payload };
            continue;
          }
        }
        const copied = chunk.copy(this.#header, this.#headerBytes, at, at + HEADER_BYTES - this.#headerBytes);
        this.#headerBytes += copied;
        at += copied;
        if (this.#headerBytes < HEADER_BYTES) return;
        this.#head = parseHeader(this.#header, 0);
        this.#payload = Buffer.allocUnsafe(this.#head.length);
        this.#payloadBytes = 0;
      }
      const copied = chunk.copy(this.#payload, this.#payloadBytes, at);
      this.#payloadBytes += copied;
      at += copied;
      if (this.#payloadBytes === this.#head.length) {
        const head = this.#head;
        const payload = this.#payload;
        this.#head = undefined;
        this.#headerBytes = 0;
        yield { type: head.type, channel: head.channel, stream: head.stream, payload };
      }
    }
  }
}

/**
 * Where the files of an archive lie in it. Only headers are read, so an archive of any size takes a few reads for each entry;
 * what is in it is hostile: names, sizes and links are bounded and checked, and nothing of it ever becomes a path on the host.
 */
import type { FileHandle } from "node:fs/promises";
import { imageInvalid } from "./read-json.js";

const BLOCK = 512;
const MAX_ENTRIES = 100_000;
const MAX_NAME_BYTES = 4096;
const MAX_EXTENDED_BYTES = 64 * 1024;
const MAX_LINKS = 8;

export type IndexedEntry =
  | { readonly kind: "file"; readonly offset: number; readonly sizeBytes: number }
  /** Resolved to a name inside the archive. */
  | { readonly kind: "link"; readonly target: string };

/** Names as `blobs/sha256/…`: no leading `./`, no trailing slash. Of two entries of a name the last counts. */
export type TarIndex = ReadonlyMap<string, IndexedEntry>;

interface Extended {
  path?: string;
  linkpath?: string;
  size?: number;
}

export async function indexTar(
  file: FileHandle,
  options: { readonly signal?: AbortSignal | undefined } = {},
): Promise<TarIndex> {
  const { size: totalBytes } = await file.stat();
  const index = new Map<string, IndexedEntry>();
  const header = Buffer.alloc(BLOCK);
  let offset = 0;
  let entries = 0;
  let next: Extended = {};
  let all: Extended = {};
  for (;;) {
    options.signal?.throwIfAborted();
    const { bytesRead } = await file.read(header, 0, BLOCK, offset);
    // Without its last blocks an archive still has all its entries; one that is cut in the middle of one has not.
    if (bytesRead === 0) break;
    if (bytesRead < BLOCK) throw cutOff(offset);
    if (header.every((byte) => byte === 0)) break;
    assertChecksum(header, offset);
    entries += 1;
    if (entries > MAX_ENTRIES) throw imageInvalid(`the archive has more than ${MAX_ENTRIES} entries`);
    const type = String.fromCharCode(header[156] as number);
    const extended: Extended = { ...all, ...next };
    const sizeBytes = isExtension(type) ? readNumber(header, 124, 12) : (extended.size ?? readNumber(header, 124, 12));
    const content = offset + BLOCK;
    const hasContent = !["1", "2", "3", "4", "5", "6"].includes(type);
    const length = hasContent ? sizeBytes : 0;
    if (content + length > totalBytes) throw cutOff(offset);
    offset = content + Math.ceil(length / BLOCK) * BLOCK;
    if (isExtension(type)) {
      const text = await readExtension(file, content, length);
      if (type === "x") next = { ...next, ...parsePax(text) };
      else if (type === "g") all = { ...all, ...parsePax(text) };
      else if (type === "L") next = { ...next, path: untilZero(text) };
      else next = { ...next, linkpath: untilZero(text) };
      continue;
    }
    next = {};
    const name = normalize(extended.path ?? ownName(header), "");
    const link = (): string => extended.linkpath ?? untilZero(header.subarray(157, 257));
    if (type === "0" || type === "\0" || type === "7") index.set(name, { kind: "file", offset: content, sizeBytes });
    else if (type === "1") index.set(name, { kind: "link", target: normalize(link(), "") });
    else if (type === "2") index.set(name, { kind: "link", target: normalize(link(), parentOf(name)) });
    else if (type !== "5") throw imageInvalid(`the archive's entry ${show(name)} is neither a file nor a link`);
  }
  return index;
}

/** Follows links inside the archive. Undefined if there is no such file. */
export function findFile(index: TarIndex, name: string): Extract<IndexedEntry, { kind: "file" }> | undefined {
  let entry = index.get(name);
  for (let links = 0; entry?.kind === "link"; links++) {
    if (links === MAX_LINKS)
      throw imageInvalid(`the archive's link ${show(name)} leads through more than ${MAX_LINKS} others`);
    entry = index.get(entry.target);
  }
  return entry;
}

function isExtension(type: string): boolean {
  return type === "x" || type === "g" || type === "L" || type === "K";
}

async function readExtension(file: FileHandle, offset: number, length: number): Promise<Buffer> {
  if (length > MAX_EXTENDED_BYTES) {
    throw imageInvalid(
      `the archive has an extended header of ${length} bytes, at most ${MAX_EXTENDED_BYTES} are allowed`,
    );
  }
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await file.read(buffer, 0, length, offset);
  if (bytesRead < length) throw cutOff(offset);
  return buffer;
}

/** `LENGTH key=value\n` each. */
function parsePax(bytes: Buffer): Extended {
  const found: Extended = {};
  for (let position = 0; position < bytes.length; ) {
    const space = bytes.indexOf(0x20, position);
    const digits = space < 0 ? "" : bytes.toString("latin1", position, space);
    const length = /^[1-9]\d{0,6}$/.test(digits) ? Number(digits) : 0;
    const end = position + length;
    const equals = bytes.indexOf(0x3d, space);
    if (length === 0 || end > bytes.length || bytes[end - 1] !== 0x0a || equals < 0 || equals >= end) {
      throw imageInvalid("the archive has a malformed extended header");
    }
    const key = bytes.toString("utf8", space + 1, equals);
    const value = bytes.subarray(equals + 1, end - 1);
    if (key.startsWith("GNU.sparse")) throw imageInvalid("the archive has sparse files, which are not supported");
    if (key === "path") found.path = readText(value);
    else if (key === "linkpath") found.linkpath = readText(value);
    else if (key === "size") {
      const size = Number(value.toString("latin1"));
      if (!/^\d{1,16}$/.test(value.toString("latin1")) || !Number.isSafeInteger(size)) {
        throw imageInvalid("the archive has an extended header with a malformed size");
      }
      found.size = size;
    }
    position = end;
  }
  return found;
}

function readText(bytes: Uint8Array): string {
  const text = Buffer.from(bytes).toString("utf8");
  if (text.includes("\0")) throw imageInvalid("the archive has a name with a zero byte");
  return text;
}

function untilZero(bytes: Buffer): string {
  const zero = bytes.indexOf(0);
  return bytes.toString("utf8", 0, zero < 0 ? bytes.length : zero);
}

/** The prefix field is ustar's; GNU's format keeps other things there. */
function ownName(header: Buffer): string {
  const name = untilZero(header.subarray(0, 100));
  const isUstar = header.toString("latin1", 257, 263) === "ustar\0";
  const prefix = isUstar ? untilZero(header.subarray(345, 500)) : "";
  return prefix === "" ? name : `${prefix}/${name}`;
}

/** A name inside the archive, whatever it was written like. Leaving the archive is refused. */
function normalize(name: string, from: string): string {
  if (Buffer.byteLength(name) > MAX_NAME_BYTES)
    throw imageInvalid(`the archive has a name of more than ${MAX_NAME_BYTES} bytes`);
  const parts: string[] = name.startsWith("/") || from === "" ? [] : from.split("/");
  for (const part of name.split("/")) {
    if (part === "" || part === ".") continue;
    if (part !== "..") parts.push(part);
    else if (parts.pop() === undefined) throw imageInvalid(`the archive's name ${show(name)} leads out of it`);
  }
  return parts.join("/");
}

function parentOf(name: string): string {
  const slash = name.lastIndexOf("/");
  return slash < 0 ? "" : name.slice(0, slash);
}

function readNumber(header: Buffer, offset: number, length: number): number {
  const field = header.subarray(offset, offset + length);
  const first = field[0] as number;
  let value: number;
  if ((first & 0x80) !== 0) {
    // GNU's way for what does not fit into octal digits: a big number of bytes, negative ones too.
    const big = field.subarray(1).reduce((total, byte) => total * 256n + BigInt(byte), BigInt(first & 0x7f));
    value = big > BigInt(Number.MAX_SAFE_INTEGER) ? Number.NaN : Number(big);
  } else {
    const text = field
      .toString("latin1")
      .replace(/[\0 ]+$/, "")
      .trimStart();
    value = text === "" ? 0 : /^[0-7]+$/.test(text) ? Number.parseInt(text, 8) : Number.NaN;
  }
  if (!Number.isSafeInteger(value)) throw imageInvalid("the archive has a header with a malformed number");
  return value;
}

function assertChecksum(header: Buffer, offset: number): void {
  let unsigned = 0;
  let signed = 0;
  for (let position = 0; position < BLOCK; position++) {
    const byte = position >= 148 && position < 156 ? 0x20 : (header[position] as number);
    unsigned += byte;
    signed += byte > 127 ? byte - 256 : byte;
  }
  const text = header
    .toString("latin1", 148, 156)
    .replace(/[\0 ]+$/, "")
    .trimStart();
  const wanted = /^[0-7]+$/.test(text) ? Number.parseInt(text, 8) : Number.NaN;
  if (wanted === unsigned || wanted === signed) return;
  throw offset === 0
    ? imageInvalid("it is not a tar archive", "An image comes as an OCI layout or as what `docker save` writes.")
    : imageInvalid(`the archive is damaged at byte ${offset}: the header's checksum is wrong`);
}

function cutOff(offset: number) {
  return imageInvalid(`the archive is cut off: the entry at byte ${offset} is not whole`, "Fetch it again.");
}

function show(name: string): string {
  return JSON.stringify(name.length > 100 ? `${name.slice(0, 100)}…` : name);
}

/**
 * Reads a tar archive as it comes. The archive was made inside a sandbox, so every byte of it is hostile: headers are
 * checked, what they make us hold is bounded, and names are only handed on, never used. Names are latin1 strings, one
 * character for each byte, because file names need not be UTF-8.
 */
import { HoldfastError } from "@holdfast/protocol";
import { ByteSource } from "./byte-source.js";

export interface TarEntry {
  readonly name: string;
  readonly type: "file" | "directory" | "symlink" | "hardlink" | "other";
  readonly sizeBytes: number;
  readonly mode: number;
  readonly modifiedMs: number;
  /** For links. */
  readonly linkName: string;
}

const BLOCK_BYTES = 512;
/** Longer than any path the kernel takes, with room for what else tar notes about a file. */
const MAX_EXTENSION_BYTES = 256 * 1024;

const EXTENSION_FLAGS = ["x", "g", "L", "K"];
const TYPES: Readonly<Record<string, TarEntry["type"]>> = {
  "0": "file",
  "\0": "file",
  "7": "file",
  "1": "hardlink",
  "2": "symlink",
  "5": "directory",
};

/** What an extension header says about the entry after it. */
type Extension = { -readonly [K in "name" | "linkName" | "sizeBytes" | "modifiedMs"]?: TarEntry[K] };

function malformed(what: string): HoldfastError {
  return new HoldfastError("guest_fault", `the archive from the sandbox is malformed: ${what}`);
}

/** Up to the first NUL. */
function textAt(block: Buffer, start: number, length: number): string {
  const text = block.toString("latin1", start, start + length);
  const end = text.indexOf("\0");
  return end === -1 ? text : text.slice(0, end);
}

function numberAt(block: Buffer, start: number, length: number, what: string): number {
  const first = block[start] ?? 0;
  let value = 0;
  if ((first & 0x80) !== 0) {
    // GNU's way for numbers that octal digits do not hold; a set bit below the mark is a negative number.
    if (first !== 0x80) throw malformed(`a ${what} out of range`);
    for (const byte of block.subarray(start + 1, start + length)) value = value * 256 + byte;
  } else {
    const digits = textAt(block, start, length).trim();
    if (!/^[0-7]*$/.test(digits)) throw malformed(`a ${what} that is no number`);
    value = digits === "" ? 0 : Number.parseInt(digits, 8);
  }
  if (!Number.isSafeInteger(value)) throw malformed(`a ${what} out of range`);
  return value;
}

function checkSum(block: Buffer): void {
  let sum = 0;
  for (const [index, byte] of block.entries()) sum += index >= 148 && index < 156 ? 0x20 : byte;
  if (sum !== numberAt(block, 148, 8, "checksum")) throw malformed("a header with a wrong checksum");
}

function parseHeader(block: Buffer, extension: Extension): TarEntry {
  checkSum(block);
  const prefix = block.toString("latin1", 257, 263) === "ustar\0" ? textAt(block, 345, 155) : "";
  const ownName = textAt(block, 0, 100);
  const name = extension.name ?? (prefix === "" ? ownName : `${prefix}/${ownName}`);
  // Archives older than tar's memory mark directories by a slash only.
  const type = TYPES[block.toString("latin1", 156, 157)] ?? "other";
  return {
    name,
    type: type === "file" && name.endsWith("/") ? "directory" : type,
    sizeBytes: extension.sizeBytes ?? numberAt(block, 124, 12, "size"),
    mode: numberAt(block, 100, 8, "mode"),
    modifiedMs: extension.modifiedMs ?? numberAt(block, 136, 12, "time") * 1000,
    linkName: extension.linkName ?? textAt(block, 157, 100),
  };
}

/** Records of the form `30 mtime=1700000000.123456789\n`, the number being the length of the whole record. */
export function parsePaxRecords(bytes: Buffer): Extension {
  const extension: Extension = {};
  for (let start = 0; start < bytes.length; ) {
    const space = bytes.indexOf(0x20, start);
    const length = Number(bytes.toString("latin1", start, space === -1 ? start : space));
    if (!Number.isSafeInteger(length) || length < 4 || start + length > bytes.length || space >= start + length) {
      throw malformed("a record of wrong length");
    }
    const record = bytes.toString("latin1", space + 1, start + length - 1);
    const equals = record.indexOf("=");
    applyPaxRecord(extension, record.slice(0, equals), record.slice(equals + 1));
    start += length;
  }
  return extension;
}

function applyPaxRecord(extension: Extension, key: string, value: string): void {
  if (key === "path") extension.name = value;
  else if (key === "linkpath") extension.linkName = value;
  else if (key === "size") {
    if (!/^\d{1,15}$/.test(value)) throw malformed("a size that is no number");
    extension.sizeBytes = Number(value);
  } else if (key === "mtime") {
    const seconds = Number(value);
    if (!Number.isFinite(seconds)) throw malformed("a time that is no number");
    extension.modifiedMs = Math.trunc(seconds * 1000);
  }
}

/** Undefined if the header is that of an entry. */
async function readExtension(source: ByteSource, block: Buffer): Promise<Extension | undefined> {
  const flag = block.toString("latin1", 156, 157);
  if (!EXTENSION_FLAGS.includes(flag)) return undefined;
  const { sizeBytes } = parseHeader(block, {});
  if (sizeBytes > MAX_EXTENSION_BYTES) throw malformed("a header without end");
  const bytes = (await source.take(sizeBytes)) ?? Buffer.alloc(0);
  await source.skip(paddingOf(sizeBytes));
  switch (flag) {
    case "x":
      return parsePaxRecords(bytes);
    case "L":
      return { name: textAt(bytes, 0, bytes.length) };
    case "K":
      return { linkName: textAt(bytes, 0, bytes.length) };
    default:
      // About all entries that follow: comments and the like, nothing we use.
      return {};
  }
}

function paddingOf(sizeBytes: number): number {
  return (BLOCK_BYTES - (sizeBytes % BLOCK_BYTES)) % BLOCK_BYTES;
}

/** Calls `visit` for each entry in turn; what it leaves of the content is skipped. */
export async function readTar(
  archive: AsyncIterable<Uint8Array>,
  visit: (entry: TarEntry, content: AsyncIterable<Uint8Array>) => Promise<void>,
): Promise<void> {
  const source = new ByteSource(archive);
  let extension: Extension = {};
  try {
    for (;;) {
      const block = await source.take(BLOCK_BYTES);
      if (block === undefined) throw malformed("it ends without an end mark");
      if (block.every((byte) => byte === 0)) break;
      const more = await readExtension(source, block);
      if (more !== undefined) {
        extension = { ...extension, ...more };
        continue;
      }
      await visitEntry(source, parseHeader(block, extension), visit);
      extension = {};
    }
    await source.drain();
  } finally {
    await source.close();
  }
}

async function visitEntry(
  source: ByteSource,
  entry: TarEntry,
  visit: (entry: TarEntry, content: AsyncIterable<Uint8Array>) => Promise<void>,
): Promise<void> {
  // Links carry no content, whatever their size says.
  const sizeBytes = entry.type === "file" || entry.type === "other" ? entry.sizeBytes : 0;
  let left = sizeBytes;
  async function* content(): AsyncGenerator<Uint8Array> {
    for await (const chunk of source.stream(left)) {
      left -= chunk.length;
      yield chunk;
    }
  }
  await visit({ ...entry, sizeBytes }, content());
  await source.skip(left + paddingOf(sizeBytes));
}

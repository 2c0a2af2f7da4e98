/**
 * A tree as a tar stream, made on the way: the manifest and one chunk are all that is held. Plain ustar, with PAX records
 * for what does not fit into its fields.
 */
import { HoldfastError } from "@holdfast/protocol";
import type { TreeEntry } from "@holdfast/recipe";

const BLOCK = 512;
const MAX_NAME_BYTES = 100;
/** Eleven octal digits. */
const MAX_OCTAL_SIZE = 8 * 1024 ** 3 - 1;
const MAX_OCTAL_ID = 0o7777777;

const TYPE_FLAGS = { file: "0", directory: "5", symlink: "2" } as const;

export type TarEntry = Omit<TreeEntry, "digest">;

export interface TarOptions<E extends TarEntry> {
  /** The content of a file. */
  readonly open: (entry: E) => AsyncIterable<Uint8Array>;
  /** Of every entry: manifests do not know when a file was changed. */
  readonly modifiedAt: Date;
}

export async function* writeTar<E extends TarEntry>(
  entries: readonly E[],
  options: TarOptions<E>,
): AsyncGenerator<Uint8Array> {
  const seconds = Math.floor(options.modifiedAt.getTime() / 1000);
  for (const entry of entries) {
    yield headersOf(entry, seconds);
    if (entry.type === "file") yield* contentOf(entry, options);
  }
  yield Buffer.alloc(2 * BLOCK);
}

async function* contentOf<E extends TarEntry>(entry: E, { open }: TarOptions<E>): AsyncGenerator<Uint8Array> {
  const size = entry.sizeBytes ?? 0;
  if (size === 0) return;
  let written = 0;
  for await (const bytes of open(entry)) {
    written += bytes.length;
    if (written > size) break;
    yield bytes;
  }
  if (written !== size) {
    throw new HoldfastError(
      "engine_fault",
      `the content of ${JSON.stringify(entry.path)} is not of its size (${size})`,
    );
  }
  yield padding(size);
}

function padding(size: number): Buffer {
  return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}

function headersOf(entry: TarEntry, seconds: number): Buffer {
  const name = entry.type === "directory" ? `${entry.path}/` : entry.path;
  const size = entry.type === "file" ? (entry.sizeBytes ?? 0) : 0;
  const link = entry.type === "symlink" ? (entry.target ?? "") : "";
  const uid = entry.uid ?? 0;
  const gid = entry.gid ?? 0;
  const records: [string, string][] = [];
  if (!fits(name)) records.push(["path", name]);
  if (!fits(link)) records.push(["linkpath", link]);
  if (size > MAX_OCTAL_SIZE) records.push(["size", String(size)]);
  if (uid > MAX_OCTAL_ID) records.push(["uid", String(uid)]);
  if (gid > MAX_OCTAL_ID) records.push(["gid", String(gid)]);
  const own = header({ name, mode: entry.mode, uid, gid, size, seconds, flag: TYPE_FLAGS[entry.type], link });
  if (records.length === 0) return own;
  const extended = Buffer.concat(records.map(([key, value]) => paxRecord(key, value)));
  const before = header({
    name: "PaxHeader",
    mode: 0o644,
    uid: 0,
    gid: 0,
    size: extended.length,
    seconds,
    flag: "x",
    link: "",
  });
  return Buffer.concat([before, extended, padding(extended.length), own]);
}

/** ASCII only: what other bytes mean in these fields is up to the reader. */
function fits(text: string): boolean {
  return Buffer.byteLength(text) <= MAX_NAME_BYTES && /^[\x20-\x7e]*$/.test(text);
}

/** `LENGTH key=value\n`, where the length counts its own digits. */
function paxRecord(key: string, value: string): Buffer {
  const rest = Buffer.from(` ${key}=${value}\n`);
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

interface HeaderFields {
  readonly name: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  readonly seconds: number;
  readonly flag: string;
  readonly link: string;
}

function header(fields: HeaderFields): Buffer {
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, offset: number, digits: number): void => {
    block.write(value.toString(8).padStart(digits, "0").slice(-digits), offset, digits, "ascii");
  };
  block.write(fields.name, 0, MAX_NAME_BYTES, "utf8");
  octal(fields.mode, 100, 7);
  octal(Math.min(fields.uid, MAX_OCTAL_ID), 108, 7);
  octal(Math.min(fields.gid, MAX_OCTAL_ID), 116, 7);
  octal(fields.size > MAX_OCTAL_SIZE ? 0 : fields.size, 124, 11);
  octal(fields.seconds, 136, 11);
  block.write("        ", 148, 8, "ascii");
  block.write(fields.flag, 156, 1, "ascii");
  block.write(fields.link, 157, MAX_NAME_BYTES, "utf8");
  block.write("ustar\0", 257, 6, "ascii");
  block.write("00", 263, 2, "ascii");
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, 8, "ascii");
  return block;
}

/** A file as E2B describes it. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { FileEntry } from "@holdfast/engine";
import { type EntryInfoSchema, FileType } from "../gen/filesystem.js";
import { permissionsText } from "./permissions-text.js";

const METADATA_PREFIX = "user.e2b.";
const PERMISSION_BITS = 0o777;
const NS_PER_SECOND = 1_000_000_000n;
/** Btrfs counts the names in a directory, so an empty one has 0 bytes; with E2B, whose disks are ext4, it takes a block. */
const EMPTY_DIRECTORY_BYTES = 4096;

const TYPES: Readonly<Record<FileEntry["type"], FileType>> = {
  file: FileType.FILE,
  directory: FileType.DIRECTORY,
  symlink: FileType.SYMLINK,
  other: FileType.UNSPECIFIED,
};

/** Times before 1970 come from the guest as two's complement. */
function timestampFromNs(unsigned: bigint): { seconds: bigint; nanos: number } {
  const ns = BigInt.asIntN(64, unsigned);
  const nanos = ((ns % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
  return { seconds: (ns - nanos) / NS_PER_SECOND, nanos: Number(nanos) };
}

function metadataFrom(attributes: FileEntry["attributes"]): Record<string, string> {
  const found = Object.entries(attributes).filter(([name]) => name.startsWith(METADATA_PREFIX));
  return Object.fromEntries(found.map(([name, value]) => [name.slice(METADATA_PREFIX.length), value.toString("utf8")]));
}

function sizeOf({ type, sizeBytes }: FileEntry): number {
  return type === "directory" && sizeBytes === 0 ? EMPTY_DIRECTORY_BYTES : sizeBytes;
}

/** A link has its target's type and mode and its own size and permissions. One that leads nowhere is just a link. */
export function entryInfo(entry: FileEntry): MessageInitShape<typeof EntryInfoSchema> {
  const { link } = entry;
  return {
    name: entry.name,
    type: TYPES[link?.targetType ?? entry.type],
    path: entry.path,
    size: BigInt(sizeOf(entry)),
    mode: (link?.targetMode ?? entry.mode) & PERMISSION_BITS,
    permissions: permissionsText(entry.type, entry.mode),
    owner: entry.owner,
    group: entry.group,
    modifiedTime: timestampFromNs(entry.modifiedNs),
    ...(link === undefined ? {} : { symlinkTarget: link.resolved ?? link.target }),
    metadata: metadataFrom(entry.attributes),
  };
}

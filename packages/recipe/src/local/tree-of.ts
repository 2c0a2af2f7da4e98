/** A tree of what was found, its files hashed where they lie. */
import type { BlobList } from "../blob-list.js";
import { defined } from "../fields.js";
import { parseTree } from "../parse-tree.js";
import type { Digest } from "../recipe.js";
import type { TreeEntry } from "../tree.js";
import { fileBlob } from "./file-blob.js";
import type { FoundEntry } from "./walk.js";

/** Many small files wait for the disk most of the time. */
const FILES_AT_ONCE = 8;

export interface TreeOptions {
  readonly blobs: BlobList;
  readonly keepOwner: boolean;
}

export async function treeOf(found: readonly FoundEntry[], { blobs, keepOwner }: TreeOptions): Promise<Digest> {
  const sorted = found.toSorted((one, other) => (one.path < other.path ? -1 : one.path > other.path ? 1 : 0));
  const entries: TreeEntry[] = [];
  let next = 0;
  const work = async (): Promise<void> => {
    for (let index = next++; index < sorted.length; index = next++) {
      const { path, source, type, mode, uid, gid, sizeBytes, target } = sorted[index] as FoundEntry;
      const owner = keepOwner ? { uid, gid } : {};
      if (type !== "file") {
        entries[index] = defined({ path, type, mode, target, ...owner });
        continue;
      }
      const blob = await fileBlob(source, sizeBytes);
      blobs.add(blob);
      entries[index] = { path, type, mode, sizeBytes: blob.sizeBytes, digest: blob.digest, ...owner };
    }
  };
  await Promise.all(Array.from({ length: FILES_AT_ONCE }, work));
  return blobs.addTree(parseTree({ version: 1, entries }, "tree"));
}

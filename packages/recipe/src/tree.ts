/** A tree of files to be copied into an image. Its canonical JSON is a blob, and the blob's digest is the tree's name. */
import type { Digest } from "./recipe.js";

export interface TreeEntry {
  /** Relative, with `/`, never empty, no `.` or `..`; `""` only for the single file that a tree may be. Sorted by code units. */
  readonly path: string;
  readonly type: "file" | "directory" | "symlink";
  /** Permission bits with set-id and sticky. 0o777 of symlinks, which have none. */
  readonly mode: number;
  /** Both or neither: only in trees that are copied with the owner `keep`. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Of files. */
  readonly sizeBytes?: number | undefined;
  readonly digest?: Digest | undefined;
  /** Of symlinks. */
  readonly target?: string | undefined;
}

export interface Tree {
  readonly version: 1;
  /** Directories that are not listed but lie on the way to an entry are made with the mode 0o755, as is the top one. */
  readonly entries: readonly TreeEntry[];
}

/** Where the blobs of a recipe come from on the client's side. */
export interface BlobSource {
  readonly digest: Digest;
  readonly sizeBytes: number;
  /** Fails in the middle if the content is not, or no longer, what the digest says. */
  open(): ReadableStream<Uint8Array>;
}

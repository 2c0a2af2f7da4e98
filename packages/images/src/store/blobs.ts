/**
 * Files of recipes, by content. They come in as streams; nobody sees one before it is whole and its digest is known to be
 * right. The time of a file is that of its last use.
 */
import { mkdirSync, renameSync, rmSync, statSync, utimesSync } from "node:fs";
import { type FileHandle, open, rename } from "node:fs/promises";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import type { BlobStore } from "../types.js";
import { copyHashed, type Received, SourceError } from "./copy-hashed.js";
import { errorFromFile } from "./file-error.js";
import { parseDigest } from "./reference.js";
import { namesIn, type WholeFiles } from "./whole-files.js";

/** How exact the time of the last use is. Thousands of blobs are asked for at once, again and again. */
const TOUCH_EVERY_MS = 60_000;

export interface BlobOptions {
  readonly signal?: AbortSignal;
  /** `request_too_large` above it. */
  readonly maxBytes?: number;
}

export class FileBlobStore implements BlobStore {
  readonly #directory: string;
  readonly #files: WholeFiles;
  readonly #maxBytes: number;

  constructor(options: { readonly directory: string; readonly files: WholeFiles; readonly maxBytes: number }) {
    this.#directory = join(options.directory, "sha256");
    this.#files = options.files;
    this.#maxBytes = options.maxBytes;
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
  }

  has(digest: Digest): boolean {
    return this.#touch(this.#pathOf(digest)) !== undefined;
  }

  missing(digests: readonly Digest[]): Digest[] {
    return [...new Set(digests)].filter((digest) => !this.has(digest));
  }

  path(digest: Digest): string {
    const path = this.#pathOf(digest);
    this.#touch(path);
    return path;
  }

  sizeBytes(digest: Digest): number {
    const sizeBytes = this.#touch(this.#pathOf(digest));
    if (sizeBytes !== undefined) return sizeBytes;
    throw new HoldfastError("file_not_found", `there is no blob ${digest}`, {
      hint: "Upload it; it may have been removed because nobody had used it for long.",
      details: { digest },
    });
  }

  async put(digest: Digest, content: AsyncIterable<Uint8Array>, options: BlobOptions = {}): Promise<void> {
    if (!this.has(digest)) await this.#receive(content, options, digest);
  }

  add(content: AsyncIterable<Uint8Array>, options: BlobOptions = {}): Promise<Received> {
    return this.#receive(content, options, undefined);
  }

  /** Removes those that nobody has used since then. */
  prune(usedBeforeMs: number): { readonly blobs: number; readonly freedBytes: number } {
    let blobs = 0;
    let freedBytes = 0;
    for (const name of namesIn(this.#directory)) {
      const path = join(this.#directory, name);
      const known = statSync(path, { throwIfNoEntry: false });
      if (known === undefined || known.mtimeMs > usedBeforeMs) continue;
      const going = this.#files.temporaryPath();
      try {
        renameSync(path, going);
        // Somebody may have been told that it is there between the look and the renaming. Now nobody can be.
        if (statSync(going).mtimeMs > usedBeforeMs) {
          renameSync(going, path);
          continue;
        }
        rmSync(going, { recursive: true, force: true });
      } catch {
        // Another process removes it too.
        continue;
      }
      blobs += 1;
      freedBytes += known.size;
    }
    return { blobs, freedBytes };
  }

  #pathOf(digest: Digest): string {
    return join(this.#directory, parseDigest(digest).slice("sha256:".length));
  }

  /** Its size, and marks it as used; undefined if it is not there. */
  #touch(path: string): number | undefined {
    try {
      const stats = statSync(path, { throwIfNoEntry: false });
      if (stats === undefined) return undefined;
      const now = Date.now();
      if (now - stats.mtimeMs > TOUCH_EVERY_MS) utimesSync(path, now / 1000, now / 1000);
      return stats.size;
    } catch {
      // It was removed as unused while we looked.
      return undefined;
    }
  }

  async #receive(
    content: AsyncIterable<Uint8Array>,
    options: BlobOptions,
    expected: Digest | undefined,
  ): Promise<Received> {
    const fresh = this.#files.temporaryPath();
    let file: FileHandle | undefined;
    try {
      options.signal?.throwIfAborted();
      file = await open(fresh, "wx", 0o600);
      const received = await copyHashed(content, file, {
        signal: options.signal,
        maxBytes: Math.min(options.maxBytes ?? Number.POSITIVE_INFINITY, this.#maxBytes),
      });
      if (expected !== undefined && received.digest !== expected) {
        throw new HoldfastError(
          "invalid_argument",
          `blob ${expected}: what was sent has the digest ${received.digest} (${received.sizeBytes} bytes)`,
          {
            hint: "The file has changed since it was hashed, or the transfer was damaged: hash it and send it again.",
            details: { field: "digest", expected, received: received.digest },
          },
        );
      }
      // What is there under its digest after a loss of power has to be what it says.
      await file.datasync();
      await file.close();
      file = undefined;
      await rename(fresh, this.#pathOf(received.digest));
      return received;
    } catch (error) {
      await file?.close().catch(() => {});
      rmSync(fresh, { force: true });
      if (options.signal?.aborted === true) {
        throw new HoldfastError("canceled", "storing the blob was canceled", { cause: error });
      }
      if (error instanceof SourceError) throw error.cause;
      throw errorFromFile(error, `storing ${expected === undefined ? "a blob" : `blob ${expected}`}`);
    }
  }
}

/**
 * Where an exported image goes. The name of a blob is its digest, which is known only after its last byte: a file can be gone
 * back in, a directory's entry can be renamed, but in front of a stream it has to be known before.
 */
import { existsSync } from "node:fs";
import { type FileHandle, mkdir, open, rename } from "node:fs/promises";
import { join } from "node:path";
import type { Writable } from "node:stream";
import type { Digest } from "@holdfast/recipe";
import { hexOf } from "../layers/digest.js";
import { FileSink } from "../layers/file-sink.js";
import { errorFromFile } from "../store/file-error.js";
import { StreamSink } from "./stream-sink.js";
import { TAR_BLOCK, TAR_END_BYTES, tarHeader, tarPadding } from "./tar-header.js";

export interface BlobFacts {
  readonly digest: Digest;
  readonly sizeBytes: number;
}

/** A blob on its way: `facts` after the last byte. */
export interface BlobContent {
  readonly content: AsyncIterable<Uint8Array>;
  facts(): Promise<BlobFacts>;
}

export interface AppendPlace {
  readonly path: string;
  readonly file: FileHandle;
  /** Where the file ends. */
  readonly start: number;
  /** It goes again soon, and its content need never reach the disk. */
  readonly isTemporary: boolean;
}

export interface BlobWriter {
  /** Whether `blob` has to be told what is known of it. */
  readonly needsFactsFirst: boolean;
  /** A blob that is there need not be given again. */
  has(digest: Digest): boolean;
  /**
   * For a blob that a program writes by itself: `append` has it written to the end of the file. Absent where there is no
   * file to write to.
   */
  appended?(append: (place: AppendPlace) => Promise<BlobFacts>): Promise<BlobFacts>;
  /** Resolves to what it was. */
  blob(blob: BlobContent, known?: BlobFacts): Promise<BlobFacts>;
  file(name: string, content: Uint8Array): Promise<void>;
  end(): Promise<void>;
}

const BLOBS = "blobs/sha256";
/** What every archive of ours begins with. */
const DIRECTORIES = ["blobs/", "blobs/sha256/"];

export function blobName(digest: Digest): string {
  return `${BLOBS}/${hexOf(digest)}`;
}

/** Into an open, empty file: headers are filled in afterwards. */
export class TarFileWriter implements BlobWriter {
  readonly needsFactsFirst = false;
  readonly #sink: FileSink;
  readonly #file: FileHandle;
  readonly #path: string;
  readonly #isTemporary: boolean;
  readonly #written = new Set<Digest>();
  #begun = false;

  /** `path`: of the same file. */
  constructor(
    file: FileHandle,
    options: { readonly path: string; readonly what: string; readonly isTemporary: boolean },
  ) {
    this.#file = file;
    this.#path = options.path;
    this.#isTemporary = options.isTemporary;
    this.#sink = new FileSink(file, options.what, options);
  }

  async #begin(): Promise<void> {
    if (this.#begun) return;
    this.#begun = true;
    for (const name of DIRECTORIES) await this.#sink.write(tarHeader({ name, sizeBytes: 0 }));
  }

  has(digest: Digest): boolean {
    return this.#written.has(digest);
  }

  async blob(blob: BlobContent): Promise<BlobFacts> {
    await this.#begin();
    const at = this.#sink.position;
    await this.#sink.write(Buffer.alloc(TAR_BLOCK));
    for await (const chunk of blob.content) {
      const waiting = this.#sink.write(chunk);
      if (waiting !== undefined) await waiting;
    }
    return this.#finish(at, await blob.facts());
  }

  async appended(append: (place: AppendPlace) => Promise<BlobFacts>): Promise<BlobFacts> {
    await this.#begin();
    const at = this.#sink.position;
    await this.#sink.write(Buffer.alloc(TAR_BLOCK));
    await this.#sink.flush();
    const start = this.#sink.position;
    const facts = await append({ path: this.#path, file: this.#file, start, isTemporary: this.#isTemporary });
    await this.#sink.moveTo(start + facts.sizeBytes);
    return this.#finish(at, facts);
  }

  async #finish(at: number, facts: BlobFacts): Promise<BlobFacts> {
    if (this.#written.has(facts.digest)) {
      await this.#sink.moveTo(at);
      await this.#file.truncate(at);
      return facts;
    }
    this.#written.add(facts.digest);
    await this.#sink.write(tarPadding(facts.sizeBytes));
    await this.#sink.writeAt(tarHeader({ name: blobName(facts.digest), sizeBytes: facts.sizeBytes }), at);
    return facts;
  }

  async file(name: string, content: Uint8Array): Promise<void> {
    await this.#begin();
    await this.#sink.write(tarHeader({ name, sizeBytes: content.length }));
    await this.#sink.write(content);
    await this.#sink.write(tarPadding(content.length));
  }

  async end(): Promise<void> {
    await this.#sink.write(Buffer.alloc(TAR_END_BYTES));
    await this.#sink.flush();
  }

  /** Waits for what is being written, for closing the file. */
  settle(): Promise<void> {
    return this.#sink.settle();
  }

  get sizeBytes(): number {
    return this.#sink.position;
  }
}

/** Into a stream, which it does not end. */
export class TarStreamWriter implements BlobWriter {
  readonly needsFactsFirst = true;
  readonly #sink: StreamSink;
  readonly #written = new Set<Digest>();
  #begun = false;

  constructor(stream: Writable, options: { readonly signal?: AbortSignal | undefined } = {}) {
    this.#sink = new StreamSink(stream, options);
  }

  async #begin(): Promise<void> {
    if (this.#begun) return;
    this.#begun = true;
    for (const name of DIRECTORIES) await this.#sink.write(tarHeader({ name, sizeBytes: 0 }));
  }

  has(digest: Digest): boolean {
    return this.#written.has(digest);
  }

  async blob(blob: BlobContent, known?: BlobFacts): Promise<BlobFacts> {
    if (known === undefined) throw new Error("a stream cannot be gone back in");
    await this.#begin();
    this.#written.add(known.digest);
    await this.#sink.write(tarHeader({ name: blobName(known.digest), sizeBytes: known.sizeBytes }));
    for await (const chunk of blob.content) await this.#sink.write(chunk);
    const facts = await blob.facts();
    if (facts.digest !== known.digest || facts.sizeBytes !== known.sizeBytes) {
      throw new Error(`the layer came out as ${facts.digest}, and as ${known.digest} before`);
    }
    await this.#sink.write(tarPadding(facts.sizeBytes));
    return facts;
  }

  async file(name: string, content: Uint8Array): Promise<void> {
    await this.#begin();
    await this.#sink.write(tarHeader({ name, sizeBytes: content.length }));
    await this.#sink.write(content);
    await this.#sink.write(tarPadding(content.length));
  }

  async end(): Promise<void> {
    await this.#sink.write(Buffer.alloc(TAR_END_BYTES));
    this.#sink.close();
  }

  close(): void {
    this.#sink.close();
  }

  get sizeBytes(): number {
    return this.#sink.position;
  }
}

/** Into an empty directory. */
export class DirectoryWriter implements BlobWriter {
  readonly needsFactsFirst = false;
  readonly #directory: string;
  readonly #what: string;
  sizeBytes = 0;

  constructor(directory: string, what: string) {
    this.#directory = directory;
    this.#what = what;
  }

  has(digest: Digest): boolean {
    return existsSync(join(this.#directory, blobName(digest)));
  }

  async blob(blob: BlobContent): Promise<BlobFacts> {
    await mkdir(join(this.#directory, BLOBS), { recursive: true });
    const fresh = this.#freshPath();
    await this.#write(fresh, blob.content);
    return this.#finish(fresh, await blob.facts());
  }

  async appended(append: (place: AppendPlace) => Promise<BlobFacts>): Promise<BlobFacts> {
    await mkdir(join(this.#directory, BLOBS), { recursive: true });
    const path = this.#freshPath();
    const file = await open(path, "w+");
    try {
      const facts = await append({ path, file, start: 0, isTemporary: false });
      await file.sync();
      return await this.#finish(path, facts);
    } finally {
      await file.close();
    }
  }

  #freshPath(): string {
    return join(this.#directory, BLOBS, ".new");
  }

  async #finish(fresh: string, facts: BlobFacts): Promise<BlobFacts> {
    await rename(fresh, join(this.#directory, blobName(facts.digest)));
    this.sizeBytes += facts.sizeBytes;
    return facts;
  }

  async file(name: string, content: Uint8Array): Promise<void> {
    await this.#write(join(this.#directory, name), [content]);
    this.sizeBytes += content.length;
  }

  async #write(path: string, content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    const file = await open(path, "w").catch((error: unknown) => {
      throw errorFromFile(error, this.#what);
    });
    const sink = new FileSink(file, this.#what);
    try {
      for await (const chunk of content) {
        const waiting = sink.write(chunk);
        if (waiting !== undefined) await waiting;
      }
      await sink.flush();
      await file.sync();
    } finally {
      await sink.settle();
      await file.close();
    }
  }

  async end(): Promise<void> {
    for (const name of [BLOBS, "blobs", "."]) {
      const directory = await open(join(this.#directory, name), "r");
      try {
        await directory.sync();
      } finally {
        await directory.close();
      }
    }
  }
}

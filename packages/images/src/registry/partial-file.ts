/**
 * A layer on its way from a registry, in a file that outlives a cut connection and a killed process: `<digits>` if nobody
 * works on it, `<digits>.<process>.<number>` while somebody does. Taking one over is a rename, which only one can win, so
 * no lock is needed. Whose digest does not come out right in the end is thrown away, wherever its bytes came from.
 */
import { createHash, type Hash } from "node:crypto";
import { constants, lstatSync } from "node:fs";
import { type FileHandle, mkdir, open, rename, rm, rmdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import { hexOf } from "../layers/digest.js";
import { readFileChunks } from "../layers/file-chunks.js";
import { FileSink } from "../layers/file-sink.js";
import { errorFromFile, isMissing } from "../store/file-error.js";
import { isTagOfLiving, tagOfUniqueName, uniqueName } from "../store/process-tag.js";
import { namesIn } from "../store/whole-files.js";

const KEPT_MS = 24 * 60 * 60 * 1000;
const READ_BYTES = 1024 * 1024;
const NAME = /^([0-9a-f]{64})(?:\.(.+))?$/;

export function partialDirectory(scratchDirectory: string): string {
  return join(scratchDirectory, "partial");
}

export class PartialFile {
  readonly path: string;
  /** How much of it there was when it was taken over. */
  readonly foundBytes: number;
  readonly #directory: string;
  readonly #digest: Digest;
  readonly #handle: FileHandle;
  readonly #sink: FileSink;
  /** Undefined if whoever reads the file checks it. */
  #hash: Hash | undefined;
  /** What can be read from the file. */
  #writtenBytes = 0;
  #wake: () => void = () => undefined;

  private constructor(
    directory: string,
    path: string,
    digest: Digest,
    handle: FileHandle,
    options: { readonly foundBytes: number; readonly isChecked: boolean },
  ) {
    this.#directory = directory;
    this.path = path;
    this.#digest = digest;
    this.#handle = handle;
    this.#sink = new FileSink(handle, `writing ${path}`, {
      isTemporary: true,
      onWritten: (end) => {
        this.#writtenBytes = end;
        this.#wake();
      },
    });
    this.foundBytes = options.foundBytes;
    this.#hash = options.isChecked ? createHash("sha256") : undefined;
  }

  /** Takes over the longest that nobody works on, or begins one. */
  static async claim(
    scratchDirectory: string,
    digest: Digest,
    options: {
      readonly maxBytes: number;
      /** Whoever reads it takes the digest of the very same bytes: then it need not be taken twice. */
      readonly isCheckedLater?: boolean | undefined;
      readonly signal?: AbortSignal | undefined;
    },
  ): Promise<PartialFile> {
    const directory = partialDirectory(scratchDirectory);
    const hex = hexOf(digest);
    const path = join(directory, `${hex}.${uniqueName()}`);
    try {
      requireOurs(directory);
      for (const { name } of abandoned(directory, hex)) {
        try {
          await rename(join(directory, name), path);
          break;
        } catch (error) {
          // Somebody else was quicker.
          if (!isMissing(error)) throw error;
        }
      }
      const handle = await openPartial(directory, path);
      const { size } = await handle.stat();
      const foundBytes = size > options.maxBytes ? 0 : size;
      // What somebody else has left may be spoilt, which has to be known while it can still be fetched again.
      const isChecked = foundBytes > 0 || options.isCheckedLater !== true;
      const file = new PartialFile(directory, path, digest, handle, { foundBytes, isChecked });
      try {
        await file.#takeIn(options.signal);
      } catch (error) {
        await file.release();
        throw error;
      }
      return file;
    } catch (error) {
      throw errorFromFile(error, `opening ${path}`);
    }
  }

  get sizeBytes(): number {
    return this.#sink.position;
  }

  /** Undefined if there is nothing to wait for. */
  append(chunk: Uint8Array): Promise<void> | undefined {
    this.#hash?.update(chunk);
    return this.#sink.write(chunk);
  }

  /** Nothing of it is only in memory any more. */
  async flush(): Promise<void> {
    await this.#sink.flush();
  }

  async restart(): Promise<void> {
    await this.#sink.moveTo(0);
    this.#writtenBytes = 0;
    await this.#handle.truncate(0);
    if (this.#hash !== undefined) this.#hash = createHash("sha256");
  }

  /** Undefined if it is checked later. */
  digest(): Digest | undefined {
    return this.#hash === undefined ? undefined : `sha256:${this.#hash.copy().digest("hex")}`;
  }

  /** All of it, as long as nobody writes. */
  async *chunks(options: {
    readonly signal?: AbortSignal | undefined;
    readonly onBytes?: ((bytes: number) => void) | undefined;
  }): AsyncGenerator<Uint8Array> {
    const whole = { start: 0, length: this.sizeBytes, what: this.path, signal: options.signal };
    for await (const chunk of readFileChunks(this.#handle, whole)) {
      options.onBytes?.(chunk.length);
      yield chunk;
    }
  }

  /**
   * The same while it is being written, by one reader: each byte as soon as it is there, until `whole` has resolved. A file
   * that begins anew is waited for: its bytes are the same ones, or the digest says that they are not.
   */
  async *chunksAsTheyCome(options: {
    readonly whole: Promise<unknown>;
    readonly onBytes?: ((bytes: number) => void) | undefined;
  }): AsyncGenerator<Uint8Array> {
    const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
    let end: { readonly failure?: unknown } | undefined;
    options.whole.then(
      () => {
        end = {};
        this.#wake();
      },
      (failure: unknown) => {
        end = { failure };
        this.#wake();
      },
    );
    for (let position = 0; ; ) {
      if (end?.failure !== undefined) throw end.failure;
      if (position >= this.#writtenBytes) {
        if (end !== undefined) return;
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        continue;
      }
      const wanted = Math.min(READ_BYTES, this.#writtenBytes - position);
      const { bytesRead } = await this.#handle.read(buffer, 0, wanted, position);
      // Cut off at this very moment, to begin anew.
      if (bytesRead === 0) continue;
      position += bytesRead;
      options.onBytes?.(bytesRead);
      yield buffer.subarray(0, bytesRead);
    }
  }

  async firstBytes(count: number): Promise<Uint8Array> {
    const { buffer, bytesRead } = await this.#handle.read(Buffer.alloc(count), 0, count, 0);
    return buffer.subarray(0, bytesRead);
  }

  /** Leaves it for whoever wants to go on with it. */
  async release(): Promise<void> {
    const isKept = this.sizeBytes > 0;
    // If the rest cannot be written, there is less to go on from.
    await this.#sink.flush().catch(() => undefined);
    await this.#handle.close();
    if (!isKept) return this.#unlink();
    try {
      await rename(this.path, join(this.#directory, hexOf(this.#digest)));
    } catch (error) {
      if (!isMissing(error)) throw errorFromFile(error, `keeping ${this.path}`);
    }
  }

  async remove(): Promise<void> {
    await this.#sink.settle();
    await this.#handle.close();
    await this.#unlink();
  }

  async #unlink(): Promise<void> {
    await rm(this.path, { force: true });
    // Nothing is left of a pull that went well; others' files keep it.
    await rmdir(this.#directory).catch(() => undefined);
  }

  /** What is there already counts only as part of the digest. */
  async #takeIn(signal: AbortSignal | undefined): Promise<void> {
    if (this.foundBytes === 0) return this.restart();
    const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
    let position = 0;
    while (position < this.foundBytes) {
      if (signal?.aborted === true) throw new HoldfastError("canceled", "the operation was canceled");
      const { bytesRead } = await this.#handle.read(buffer, 0, READ_BYTES, position);
      if (bytesRead === 0) break;
      this.#hash?.update(buffer.subarray(0, bytesRead));
      position += bytesRead;
      await this.#sink.moveTo(position);
    }
  }
}

/** Removes what nobody has come back for. */
export async function sweepPartialFiles(scratchDirectory: string, nowMs = Date.now()): Promise<void> {
  const directory = partialDirectory(scratchDirectory);
  if (!isOurs(directory)) return;
  for (const name of namesIn(directory)) {
    if (!NAME.test(name) || isWorkedOn(name)) continue;
    const path = join(directory, name);
    const found = await stat(path).catch(() => undefined);
    if (found !== undefined && nowMs - found.mtimeMs > KEPT_MS) await rm(path, { force: true });
  }
  await rmdir(directory).catch(() => undefined);
}

function isWorkedOn(name: string): boolean {
  const owner = NAME.exec(name)?.[2];
  const tag = owner === undefined ? undefined : tagOfUniqueName(owner);
  return tag !== undefined && isTagOfLiving(tag);
}

/** How much of it lies there, to be gone on with. */
export function abandonedBytes(scratchDirectory: string, digest: Digest): number {
  if (!isOurs(partialDirectory(scratchDirectory))) return 0;
  return abandoned(partialDirectory(scratchDirectory), hexOf(digest))[0]?.sizeBytes ?? 0;
}

/** The longest first. */
function abandoned(directory: string, hex: string): { readonly name: string; readonly sizeBytes: number }[] {
  return namesIn(directory)
    .filter((name) => NAME.exec(name)?.[1] === hex && !isWorkedOn(name))
    .flatMap((name) => {
      const found = lstatSync(join(directory, name), { throwIfNoEntry: false });
      return found?.isFile() === true ? [{ name, sizeBytes: found.size }] : [];
    })
    .sort((left, right) => right.sizeBytes - left.sizeBytes);
}

/** A scratch directory may be one that others write to as well: what they have put there is neither used nor removed. */
function isOurs(directory: string): boolean {
  const found = lstatSync(directory, { throwIfNoEntry: false });
  return found === undefined || (found.isDirectory() && found.uid === process.geteuid?.());
}

function requireOurs(directory: string): void {
  if (isOurs(directory)) return;
  throw new HoldfastError("invalid_argument", `scratch: ${directory} belongs to somebody else`, {
    hint: "Choose another scratch directory, or remove that one.",
    details: { field: "scratch" },
  });
}

async function openPartial(directory: string, path: string): Promise<FileHandle> {
  for (let tries = 1; ; tries++) {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    requireOurs(directory);
    try {
      return await open(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600);
    } catch (error) {
      // Whoever finished at this very moment has removed the empty directory.
      if (!isMissing(error) || tries === 100) throw error;
    }
  }
}

/** The files of an image's archive by name, whether it is a tar or a directory. Random access, hostile content. */
import { constants } from "node:fs";
import { type FileHandle, open, realpath } from "node:fs/promises";
import { join, sep } from "node:path";
import { readFileChunks } from "../layers/file-chunks.js";
import { isMissing } from "../store/file-error.js";
import { imageInvalid } from "./read-json.js";
import { findFile, indexTar, type TarIndex } from "./tar-index.js";

export interface ArchiveFiles {
  /** Undefined if there is no such file. */
  sizeBytes(name: string): Promise<number | undefined>;
  /** All of a small file, or its first bytes. Undefined if there is no such file. */
  read(name: string, options: { readonly maxBytes: number; readonly part?: boolean }): Promise<Buffer | undefined>;
  stream(name: string, options?: { readonly signal?: AbortSignal | undefined }): AsyncIterable<Uint8Array>;
  close(): Promise<void>;
}

export async function readRequired(files: ArchiveFiles, name: string, maxBytes: number): Promise<Buffer> {
  const content = await files.read(name, { maxBytes });
  if (content === undefined) throw missingFile(name);
  return content;
}

export function missingFile(name: string) {
  return imageInvalid(`the archive has no file ${JSON.stringify(name.slice(0, 200))}, which its manifest names`);
}

function tooLong(name: string, size: number, maxBytes: number) {
  return imageInvalid(`${name.slice(0, 200)}: ${size} bytes, at most ${maxBytes} are allowed`);
}

async function readAt(file: FileHandle, offset: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  let filled = 0;
  while (filled < length) {
    const { bytesRead } = await file.read(buffer, filled, length - filled, offset + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return buffer.subarray(0, filled);
}

class TarFiles implements ArchiveFiles {
  readonly #file: FileHandle;
  readonly #index: TarIndex;

  constructor(file: FileHandle, index: TarIndex) {
    this.#file = file;
    this.#index = index;
  }

  async sizeBytes(name: string): Promise<number | undefined> {
    return findFile(this.#index, name)?.sizeBytes;
  }

  async read(
    name: string,
    options: { readonly maxBytes: number; readonly part?: boolean },
  ): Promise<Buffer | undefined> {
    const entry = findFile(this.#index, name);
    if (entry === undefined) return undefined;
    if (entry.sizeBytes > options.maxBytes && options.part !== true) {
      throw tooLong(name, entry.sizeBytes, options.maxBytes);
    }
    return readAt(this.#file, entry.offset, Math.min(entry.sizeBytes, options.maxBytes));
  }

  stream(name: string, options: { readonly signal?: AbortSignal | undefined } = {}): AsyncIterable<Uint8Array> {
    const entry = findFile(this.#index, name);
    if (entry === undefined) throw missingFile(name);
    return readFileChunks(this.#file, {
      start: entry.offset,
      length: entry.sizeBytes,
      what: name,
      signal: options.signal,
    });
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

/** Takes the file over. */
export async function openTarFiles(
  file: FileHandle,
  options: { readonly signal?: AbortSignal | undefined } = {},
): Promise<ArchiveFiles> {
  try {
    return new TarFiles(file, await indexTar(file, options));
  } catch (error) {
    await file.close();
    throw error;
  }
}

class DirectoryFiles implements ArchiveFiles {
  /** Without links. */
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  async #open(name: string): Promise<{ file: FileHandle; size: number } | undefined> {
    let path: string;
    try {
      path = await realpath(join(this.#root, name));
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
    if (!path.startsWith(this.#root.endsWith(sep) ? this.#root : this.#root + sep)) {
      throw imageInvalid(`${JSON.stringify(name.slice(0, 200))} leads out of the directory`);
    }
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const stat = await file.stat();
    if (stat.isFile()) return { file, size: stat.size };
    await file.close();
    throw imageInvalid(`${JSON.stringify(name.slice(0, 200))} is not a file`);
  }

  async sizeBytes(name: string): Promise<number | undefined> {
    const opened = await this.#open(name);
    await opened?.file.close();
    return opened?.size;
  }

  async read(
    name: string,
    options: { readonly maxBytes: number; readonly part?: boolean },
  ): Promise<Buffer | undefined> {
    const opened = await this.#open(name);
    if (opened === undefined) return undefined;
    try {
      if (opened.size > options.maxBytes && options.part !== true) throw tooLong(name, opened.size, options.maxBytes);
      return await readAt(opened.file, 0, Math.min(opened.size, options.maxBytes));
    } finally {
      await opened.file.close();
    }
  }

  async *stream(name: string, options: { readonly signal?: AbortSignal | undefined } = {}): AsyncGenerator<Uint8Array> {
    const opened = await this.#open(name);
    if (opened === undefined) throw missingFile(name);
    try {
      yield* readFileChunks(opened.file, { start: 0, length: opened.size, what: name, signal: options.signal });
    } finally {
      await opened.file.close();
    }
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

export async function openDirectoryFiles(path: string): Promise<ArchiveFiles> {
  return new DirectoryFiles(await realpath(path));
}

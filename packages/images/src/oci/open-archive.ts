/** From what the user has to files by name: a directory, a tar, a compressed tar, or a stream of either. */
import { createReadStream } from "node:fs";
import { open, stat } from "node:fs/promises";
import { HoldfastError } from "@holdfast/protocol";
import type { ImagesContext } from "../context.js";
import { decompressed, SNIFF_BYTES, sniffCompression } from "../layers/compression.js";
import { CHUNK_BYTES, readFileChunks } from "../layers/file-chunks.js";
import type { OnProgress } from "../layers/progress.js";
import { abortable } from "../layers/pump.js";
import { openScratch, sweepScratch } from "../scratch/scratch.js";
import { type ArchiveFiles, openDirectoryFiles, openTarFiles } from "./archive-files.js";
import { spool } from "./spool.js";

export type ArchiveSource =
  | { readonly path: string }
  | { readonly stream: AsyncIterable<Uint8Array>; readonly sizeBytes?: number | undefined };

export interface OpenArchiveOptions {
  /** Where temporary files go, if not where the context says. */
  readonly scratch?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
}

type ScratchContext = Pick<ImagesContext, "scratchDirectory">;

export async function openArchive(
  context: ScratchContext,
  source: ArchiveSource,
  options: OpenArchiveOptions,
): Promise<ArchiveFiles> {
  if ("stream" in source) return spoolArchive(context, source, options);
  const { path } = source;
  const stats = await stat(path).catch((error: unknown) => {
    throw cannotRead(path, error);
  });
  if (stats.isDirectory()) return openDirectoryFiles(path);
  // A pipe, a terminal, a device: it can be read once.
  if (!stats.isFile()) {
    return spoolArchive(context, { stream: createReadStream(path, { highWaterMark: CHUNK_BYTES }) }, options);
  }
  const file = await open(path, "r").catch((error: unknown) => {
    throw cannotRead(path, error);
  });
  let isTakenOver = false;
  try {
    const first = Buffer.alloc(SNIFF_BYTES);
    await file.read(first, 0, SNIFF_BYTES, 0);
    if (sniffCompression(first) !== "none") {
      const stream = readFileChunks(file, { start: 0, length: stats.size, what: path, signal: options.signal });
      return await spoolArchive(context, { stream, sizeBytes: stats.size }, options);
    }
    isTakenOver = true;
  } finally {
    if (!isTakenOver) await file.close();
  }
  return openTarFiles(file, options);
}

function cannotRead(path: string, error: unknown): HoldfastError {
  const { code, message } = error as NodeJS.ErrnoException;
  const isMissing = code === "ENOENT" || code === "ENOTDIR";
  return new HoldfastError(
    isMissing ? "file_not_found" : "file_access_denied",
    `cannot read ${path}: ${isMissing ? "there is no such file" : message}`,
    { cause: error, hint: "Give the path of an archive or of an OCI layout's directory." },
  );
}

/** An archive is read here and there, a stream from front to back: so it becomes a file first, plain even if it came packed. */
async function spoolArchive(
  context: ScratchContext,
  source: Extract<ArchiveSource, { stream: unknown }>,
  options: OpenArchiveOptions,
): Promise<ArchiveFiles> {
  const { signal, onProgress } = options;
  const directory = options.scratch ?? context.scratchDirectory;
  // A directory that was chosen for one job is looked after by nobody else.
  if (options.scratch !== undefined) sweepScratch(options.scratch);
  const what = "keeping the archive";
  const scratch = await openScratch({ scratchDirectory: directory }, { what, neededBytes: source.sizeBytes });
  const iterator = abortable(source.stream, signal);
  try {
    const first = await takeFirst(iterator, SNIFF_BYTES);
    const kind = sniffCompression(first);
    const content = decompressed(joined(first, iterator), kind, { what: "the archive", signal });
    const totalBytes = kind === "none" ? source.sizeBytes : undefined;
    const { path } = await spool(content, { scratch, name: "archive.tar", what, totalBytes, signal, onProgress });
    const files = await openTarFiles(await open(path, "r"), { signal });
    return {
      sizeBytes: (name) => files.sizeBytes(name),
      read: (name, how) => files.read(name, how),
      stream: (name, how) => files.stream(name, how),
      close: async () => {
        await files.close();
        await scratch.close();
      },
    };
  } catch (error) {
    await scratch.close();
    // Whoever sends it need not go on.
    await iterator.return?.();
    throw error;
  }
}

/** At least so many bytes, unless there are no more. */
async function takeFirst(iterator: AsyncIterator<Uint8Array>, wanted: number): Promise<Buffer> {
  let first = Buffer.alloc(0);
  while (first.length < wanted) {
    const step = await iterator.next();
    if (step.done === true) break;
    // Copied: a chunk is the source's again as soon as the next one is asked for.
    first = Buffer.concat([first, step.value]);
  }
  return first;
}

async function* joined(first: Uint8Array, iterator: AsyncIterator<Uint8Array>): AsyncGenerator<Uint8Array> {
  if (first.length > 0) yield first;
  for (;;) {
    const step = await iterator.next();
    if (step.done === true) return;
    yield step.value;
  }
}

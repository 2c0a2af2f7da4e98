import { statfsSync } from "node:fs";
import { open } from "node:fs/promises";
import { HoldfastError } from "@holdfast/protocol";
import { FileSink } from "../layers/file-sink.js";
import { type OnProgress, ProgressCounter } from "../layers/progress.js";
import type { Scratch } from "../scratch/scratch.js";
import { errorFromFile } from "../store/file-error.js";

const CHECK_EVERY_BYTES = 64 * 1024 * 1024;
/** What a stream of unknown length leaves of the file system for everybody else. */
const RESERVED_SHARE = 0.02;

export interface SpoolOptions {
  readonly scratch: Scratch;
  readonly name: string;
  readonly what: string;
  readonly totalBytes?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
  readonly onChunk?: ((chunk: Uint8Array) => void) | undefined;
}

export interface Spooled {
  readonly path: string;
  readonly sizeBytes: number;
}

/** Everything of a stream into a temporary file, once. The caller closes the scratch, whatever happens. */
export async function spool(content: AsyncIterable<Uint8Array>, options: SpoolOptions): Promise<Spooled> {
  const { scratch, what, signal, onChunk } = options;
  const path = scratch.path(options.name);
  const file = await open(path, "wx", 0o600).catch((error: unknown) => {
    throw errorFromFile(error, what);
  });
  const sink = new FileSink(file, what, { isTemporary: true });
  const counter = new ProgressCounter({
    onProgress: options.onProgress,
    phase: "spool",
    what,
    totalBytes: options.totalBytes ?? null,
  });
  let checkAt = 0;
  try {
    for await (const chunk of content) {
      signal?.throwIfAborted();
      if (sink.position >= checkAt) {
        assertRoom(scratch.directory, what);
        checkAt = sink.position + CHECK_EVERY_BYTES;
      }
      onChunk?.(chunk);
      const waiting = sink.write(chunk);
      if (waiting !== undefined) await waiting;
      counter.add(chunk.length);
    }
    await sink.flush();
    counter.end();
    return { path, sizeBytes: sink.position };
  } finally {
    await sink.settle();
    await file.close();
  }
}

function assertRoom(directory: string, what: string): void {
  const { bavail, bsize, blocks } = statfsSync(directory);
  if (bavail > blocks * RESERVED_SHARE) return;
  const freeBytes = bavail * bsize;
  throw new HoldfastError("no_space", `${what}: only ${freeBytes} bytes are left in ${directory}`, {
    hint: "Free some space, or choose another directory for temporary files with --scratch or HOLDFAST_SCRATCH_DIR.",
    details: { directory, freeBytes },
  });
}

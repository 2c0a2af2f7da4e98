/**
 * A file as a tar of its own, for those who take files only in archives. A tar's header says how long the file is, so a stream
 * whose length nobody knows is kept once in a temporary file; then header, content and padding go out in a single pass.
 */
import { open } from "node:fs/promises";
import { invalidArgument } from "@holdfast/protocol";
import type { ImagesContext } from "../context.js";
import { readFileChunks } from "../layers/file-chunks.js";
import type { OnProgress } from "../layers/progress.js";
import { abortable } from "../layers/pump.js";
import { spool } from "../oci/spool.js";
import { TAR_END_BYTES, tarEntryBytes, tarHeader, tarPadding } from "../oci/tar-header.js";
import { openScratch, sweepScratch } from "../scratch/scratch.js";

export interface WrapOptions {
  /** Of the file in the archive; plain ASCII without blanks, at most 100 bytes. */
  readonly name: string;
  readonly mode?: number | undefined;
  readonly scratch?: string | undefined;
  /** Of the content, if known: only for looking whether there is room for it. */
  readonly sizeBytes?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
}

export interface WrappedTar {
  /** Of the whole archive. */
  readonly sizeBytes: number;
  /** Once. A chunk is the reader's until it asks for the next one. The temporary file goes when it has ended. */
  readonly stream: AsyncIterable<Uint8Array>;
  /** For whoever does not read it to its end; more than once is fine. */
  close(): Promise<void>;
}

type ScratchContext = Pick<ImagesContext, "scratchDirectory">;

/** Before anything is done: a header cannot say other names. */
export function checkFileName(name: string, field: string): void {
  if (/^[\x21-\x7e]{1,100}$/.test(name) && !name.endsWith("/")) return;
  throw invalidArgument(field, name, "a file's name of 1 to 100 plain characters without blanks");
}

export async function wrapAsTar(
  context: ScratchContext,
  content: AsyncIterable<Uint8Array>,
  options: WrapOptions,
): Promise<WrappedTar> {
  const { name, signal, onProgress } = options;
  checkFileName(name, "name");
  if (options.scratch !== undefined) sweepScratch(options.scratch);
  const scratch = await openScratch(
    { scratchDirectory: options.scratch ?? context.scratchDirectory },
    { what: `keeping ${name}`, neededBytes: options.sizeBytes },
  );
  try {
    const { path, sizeBytes } = await spool(abortable(content, signal), {
      scratch,
      name: "content",
      what: name,
      totalBytes: options.sizeBytes,
      signal,
      onProgress,
    });
    return tarAround({ path, sizeBytes, name, mode: options.mode, signal, close: () => scratch.close() });
  } catch (error) {
    await scratch.close();
    throw error;
  }
}

/** Around a file that is there; `close` removes what was made for it. */
export function tarAround(options: {
  readonly path: string;
  readonly sizeBytes: number;
  readonly name: string;
  readonly mode?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly close: () => Promise<void>;
}): WrappedTar {
  const { path, sizeBytes, name, mode, signal, close } = options;
  async function* archive(): AsyncGenerator<Uint8Array> {
    const file = await open(path, "r");
    try {
      yield tarHeader({ name, sizeBytes, mode });
      yield* readFileChunks(file, { start: 0, length: sizeBytes, what: name, signal });
      yield Buffer.concat([tarPadding(sizeBytes), Buffer.alloc(TAR_END_BYTES)]);
    } finally {
      await file.close();
      await close();
    }
  }
  return { sizeBytes: tarEntryBytes(sizeBytes) + TAR_END_BYTES, stream: archive(), close };
}

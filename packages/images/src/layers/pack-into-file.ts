import { type FileHandle, open } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { LayerId } from "@holdfast/engine";
import type { ImagesContext } from "../context.js";
import { DigestMeter } from "./digest.js";
import { CHUNK_BYTES } from "./file-chunks.js";
import { asPackFault, type Packed, startPack } from "./pack-layer.js";

/** How long to wait for more when all that was written has been read. */
const LOOK_MS = 2;
/** What lies in memory before the disk is told to begin. */
const SYNC_EVERY_BYTES = 32 * 1024 * 1024;

/**
 * A layer's tar to the end of a file. The program writes there itself and we read behind it, out of the page cache, for the
 * digest: the bytes do not pass through this process twice.
 */
export async function packIntoFile(
  context: ImagesContext,
  id: LayerId,
  options: {
    readonly path: string;
    /** The same file, for reading. */
    readonly file: FileHandle;
    /** Where it ends now. */
    readonly start: number;
    /** It goes again soon, and its content need never reach the disk. */
    readonly isTemporary?: boolean | undefined;
    readonly signal?: AbortSignal | undefined;
    readonly onBytes?: ((bytes: number) => void) | undefined;
  },
): Promise<Packed> {
  const { file, start, isTemporary = false, signal, onBytes } = options;
  const appended = await open(options.path, "a");
  try {
    const child = startPack(context, id, appended.fd, { signal, diesWithUs: true });
    let hasEnded = false;
    const ended = child.report.then(
      () => {
        hasEnded = true;
      },
      () => {
        hasEnded = true;
      },
    );
    try {
      const meter = new DigestMeter();
      for await (const chunk of follow(file, { start, isTemporary, hasEnded: () => hasEnded })) {
        meter.add(chunk);
        onBytes?.(chunk.length);
      }
      await child.report;
      return { diffId: meter.digest(), sizeBytes: meter.sizeBytes };
    } finally {
      child.kill();
      await ended;
    }
  } catch (error) {
    throw asPackFault(error);
  } finally {
    await appended.close();
  }
}

/** What comes into the file until nobody writes any more. A chunk is the reader's until it asks for the next. */
async function* follow(
  file: FileHandle,
  options: { readonly start: number; readonly isTemporary: boolean; readonly hasEnded: () => boolean },
): AsyncGenerator<Uint8Array> {
  const { start, isTemporary, hasEnded } = options;
  const buffers = [Buffer.allocUnsafeSlow(CHUNK_BYTES), Buffer.allocUnsafeSlow(CHUNK_BYTES)] as const;
  let turn: 0 | 1 = 0;
  let position = start;
  let syncAt = isTemporary ? Number.POSITIVE_INFINITY : start + SYNC_EVERY_BYTES;
  let syncing: Promise<void> | undefined;
  const read = async (): Promise<Uint8Array | undefined> => {
    for (;;) {
      // Asked before reading: what was written until then is seen.
      const isLast = hasEnded();
      const { bytesRead } = await file.read(buffers[turn], 0, CHUNK_BYTES, position);
      if (bytesRead > 0) {
        const chunk = buffers[turn].subarray(0, bytesRead);
        turn = turn === 0 ? 1 : 0;
        position += bytesRead;
        return chunk;
      }
      if (isLast) return undefined;
      await sleep(LOOK_MS);
    }
  };
  let next = read();
  try {
    for (;;) {
      const chunk = await next;
      if (chunk === undefined) return;
      next = read();
      // If the reader goes away it is awaited below; until then nobody may take it for unhandled.
      next.catch(() => undefined);
      if (position >= syncAt && syncing === undefined) {
        syncAt = position + SYNC_EVERY_BYTES;
        // Whether it went well is asked at the end.
        syncing = file
          .datasync()
          .catch(() => undefined)
          .then(() => {
            syncing = undefined;
          });
      }
      yield chunk;
    }
  } finally {
    await next.catch(() => undefined);
    await syncing;
  }
}

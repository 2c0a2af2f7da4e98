import type { FileHandle } from "node:fs/promises";
import { HoldfastError } from "@holdfast/protocol";

export const CHUNK_BYTES = 1024 * 1024;
/**
 * For what is hashed here while a thread writes the piece before it: so small that the two keep pace, and that the kernel
 * need not look for large stretches of memory for the page cache, which costs some hosts more than the copying.
 */
export const PIECE_BYTES = 256 * 1024;

/**
 * A stretch of a file in big chunks, the next one being read while the reader works on this one. Two buffers in all: a
 * chunk is the reader's until it asks for the next.
 */
export async function* readFileChunks(
  file: FileHandle,
  options: {
    readonly start: number;
    readonly length: number;
    readonly what: string;
    readonly signal?: AbortSignal | undefined;
  },
): AsyncGenerator<Uint8Array> {
  const { start, length, what, signal } = options;
  if (length === 0) return;
  const size = Math.min(CHUNK_BYTES, length);
  const buffers = [Buffer.allocUnsafeSlow(size), Buffer.allocUnsafeSlow(size)] as const;
  const end = start + length;
  let position = start;
  let turn = 0;
  const read = async (): Promise<Uint8Array> => {
    const buffer = turn === 0 ? buffers[0] : buffers[1];
    turn = 1 - turn;
    const wanted = Math.min(size, end - position);
    let filled = 0;
    while (filled < wanted) {
      const { bytesRead } = await file.read(buffer, filled, wanted - filled, position + filled);
      if (bytesRead === 0) {
        throw new HoldfastError("image_invalid", `${what}: cut off after ${position + filled - start} bytes`, {
          hint: "The file is shorter than it says; fetch it again.",
        });
      }
      filled += bytesRead;
    }
    position += filled;
    return buffer.subarray(0, filled);
  };
  let next: Promise<Uint8Array> | undefined = read();
  try {
    while (next !== undefined) {
      const chunk: Uint8Array = await next;
      signal?.throwIfAborted();
      next = position < end ? read() : undefined;
      // If the reader goes away it is awaited below; until then nobody may take it for unhandled.
      next?.catch(() => undefined);
      yield chunk;
    }
  } finally {
    await next?.catch(() => undefined);
  }
}

/** Files as blobs: hashed and sent chunk by chunk, never held. */
import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { HoldfastError } from "@holdfast/protocol";
import type { Digest } from "../recipe.js";
import type { BlobSource } from "../tree.js";
import { localFault } from "./local-fault.js";

const CHUNK_BYTES = 256 * 1024;

/** Without following a link, and without waiting if the path has become a pipe. */
async function openFile(path: string): Promise<FileHandle> {
  try {
    const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    if ((await handle.stat()).isFile()) return handle;
    await handle.close();
  } catch (error) {
    throw localFault(path, error);
  }
  throw changed(path);
}

function changed(path: string): HoldfastError {
  return new HoldfastError("invalid_argument", `${path} has changed since it was read for the image`, {
    details: { path },
    hint: "Build again when nothing writes to it.",
  });
}

async function readChunk(path: string, handle: FileHandle, buffer: Uint8Array): Promise<number> {
  try {
    return (await handle.read(buffer, 0, buffer.length)).bytesRead;
  } catch (error) {
    throw localFault(path, error);
  }
}

/** Reads the file once and remembers only what it was. `expectedBytes` spares small files a large buffer. */
export async function fileBlob(path: string, expectedBytes = CHUNK_BYTES): Promise<BlobSource> {
  const handle = await openFile(path);
  try {
    const hash = createHash("sha256");
    const buffer = new Uint8Array(Math.min(expectedBytes + 1, CHUNK_BYTES));
    let sizeBytes = 0;
    for (;;) {
      const count = await readChunk(path, handle, buffer);
      hash.update(buffer.subarray(0, count));
      sizeBytes += count;
      // Of a file, less than was asked for is the rest.
      if (count < buffer.length) break;
    }
    const digest: Digest = `sha256:${hash.digest("hex")}`;
    return { digest, sizeBytes, open: () => openBlob(path, digest, sizeBytes) };
  } finally {
    await handle.close();
  }
}

/** The last chunk goes out only when the whole is known to be what was promised, so that nobody can take a wrong file for it. */
function openBlob(path: string, digest: Digest, sizeBytes: number): ReadableStream<Uint8Array> {
  const hash = createHash("sha256");
  let handle: FileHandle | undefined;
  let readBytes = 0;
  const close = async (): Promise<void> => {
    const opened = handle;
    handle = undefined;
    await opened?.close();
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          handle ??= await openFile(path);
          const buffer = new Uint8Array(CHUNK_BYTES);
          const chunk = buffer.subarray(0, await readChunk(path, handle, buffer));
          readBytes += chunk.length;
          if (readBytes > sizeBytes || (chunk.length === 0 && readBytes < sizeBytes)) throw changed(path);
          hash.update(chunk);
          const isLast = readBytes === sizeBytes;
          if (isLast && `sha256:${hash.digest("hex")}` !== digest) throw changed(path);
          if (chunk.length > 0) controller.enqueue(chunk);
          if (!isLast) return;
          await close();
          controller.close();
        } catch (error) {
          await close();
          throw error;
        }
      },
      cancel: close,
    },
    { highWaterMark: 0 },
  );
}

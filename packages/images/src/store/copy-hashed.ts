import { createHash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";

export interface Received {
  readonly digest: Digest;
  readonly sizeBytes: number;
}

/** The content broke, not we; `cause` is what it said. */
export class SourceError extends Error {
  constructor(cause: unknown) {
    super("the content broke off", { cause });
  }
}

/** Streams content into a file: the next chunk is asked for when the last one is written. */
export async function copyHashed(
  content: AsyncIterable<Uint8Array>,
  file: FileHandle,
  options: { readonly signal?: AbortSignal | undefined; readonly maxBytes: number },
): Promise<Received> {
  const { signal, maxBytes } = options;
  const hash = createHash("sha256");
  let sizeBytes = 0;
  const iterator = content[Symbol.asyncIterator]();
  let isAtEnd = false;
  // A source that hangs must not keep us from stopping.
  let onAbort = (): void => {};
  const aborted = new Promise<never>((_resolve, reject) => {
    onAbort = () => reject(new HoldfastError("canceled", "the copy was canceled", { cause: signal?.reason }));
  });
  aborted.catch(() => {});
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted === true) onAbort();
  try {
    for (;;) {
      const next = await Promise.race([nextOf(iterator), aborted]);
      if (next.done === true) {
        isAtEnd = true;
        return { digest: `sha256:${hash.digest("hex")}`, sizeBytes };
      }
      const chunk: unknown = next.value;
      if (!(chunk instanceof Uint8Array)) throw invalidArgument("content", typeof chunk, "chunks of bytes");
      sizeBytes += chunk.length;
      if (sizeBytes > maxBytes) {
        throw new HoldfastError(
          "request_too_large",
          `the content is larger than the ${maxBytes} bytes that are allowed`,
          {
            details: { limitBytes: maxBytes },
          },
        );
      }
      hash.update(chunk);
      for (let written = 0; written < chunk.length; ) {
        written += (await file.write(chunk, written, chunk.length - written)).bytesWritten;
      }
    }
  } finally {
    signal?.removeEventListener("abort", onAbort);
    // Not waited for: a source that hangs does so here too.
    if (!isAtEnd) void Promise.resolve(iterator.return?.()).catch(() => {});
  }
}

async function nextOf(iterator: AsyncIterator<Uint8Array>): Promise<IteratorResult<Uint8Array>> {
  try {
    return await iterator.next();
  } catch (error) {
    throw new SourceError(error);
  }
}

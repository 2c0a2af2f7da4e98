import type { TransferProgress } from "@holdfast/sdk";

const EVERY_BYTES = 4 * 1024 * 1024;

/** The same chunks; tells on the way how many bytes have gone by. */
export async function* counting(
  source: AsyncIterable<Uint8Array>,
  options: Omit<TransferProgress, "doneBytes"> & { readonly onProgress: (progress: TransferProgress) => void },
): AsyncGenerator<Uint8Array> {
  const { onProgress, ...about } = options;
  let doneBytes = 0;
  let toldBytes = 0;
  for await (const chunk of source) {
    yield chunk;
    doneBytes += chunk.length;
    if (doneBytes - toldBytes < EVERY_BYTES) continue;
    toldBytes = doneBytes;
    onProgress({ ...about, doneBytes });
  }
  onProgress({ ...about, doneBytes });
}

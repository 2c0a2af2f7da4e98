/** The body of an answer as a stream that is read only as fast as its reader, and fails with a `HoldfastError`. */
import { chunksOf } from "./chunks.js";
import type { Transport } from "./transport.js";

export function bodyStream(
  transport: Transport,
  response: Response,
  signal: AbortSignal | undefined,
): ReadableStream<Uint8Array> {
  const chunks = chunksOf(transport, response, { signal, idleMs: null });
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await chunks.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await response.body?.cancel().catch(() => {});
        await chunks.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
}

/**
 * A stream that can be stopped from outside. `fetch` goes on reading a body that nobody wants any more: a source without
 * end would never be let go of.
 */
export function stoppableStream(source: ReadableStream<Uint8Array>): {
  readonly stream: ReadableStream<Uint8Array>;
  stop(): void;
} {
  const reader = source.getReader();
  let stopped = false;
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = stopped ? { done: true } : await reader.read();
        if (done || stopped) controller.close();
        else controller.enqueue(value as Uint8Array);
      },
      async cancel(reason) {
        stopped = true;
        await reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
  return {
    stream,
    stop: () => {
      stopped = true;
      // The source's own failure to let go concerns nobody any more.
      reader.cancel().catch(() => {});
    },
  };
}

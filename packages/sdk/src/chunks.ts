/** The body of an answer, chunk by chunk. */
import { HoldfastError } from "@holdfast/protocol";
import type { Transport } from "./transport.js";

/** The server says something every 15 seconds. Three times that in silence, and the connection is dead. */
const IDLE_MS = 45_000;

async function withinTime<T>(promise: Promise<T>, ms: number | null): Promise<T> {
  if (ms === null) return promise;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const idle = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      reject(new HoldfastError("server_unreachable", `the connection was silent for ${ms / 1000} seconds`));
    }, ms);
  });
  try {
    return await Promise.race([promise, idle]);
  } finally {
    clearTimeout(timer);
  }
}

/** Leaving the loop closes the connection. `idleMs: null` is for answers on which the server may well be silent. */
export async function* chunksOf(
  transport: Transport,
  response: Response,
  options: { readonly signal?: AbortSignal | undefined; readonly idleMs?: number | null } = {},
): AsyncGenerator<Uint8Array> {
  if (response.body === null) return;
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await withinTime(reader.read(), options.idleMs === undefined ? IDLE_MS : options.idleMs);
      if (done) return;
      yield value;
    }
  } catch (reason) {
    throw transport.failure(reason, options.signal);
  } finally {
    reader.cancel().catch(() => {});
  }
}

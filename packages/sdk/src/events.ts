/** Events: as they happen, or those that are there. */
import { type EventList, HoldfastError, type SandboxEvent } from "@holdfast/protocol";
import { isPassing, Reconnects } from "./backoff.js";
import { chunksOf } from "./chunks.js";
import { serverSentEvents } from "./server-sent-events.js";
import type { Transport } from "./transport.js";

export interface EventsOptions {
  /** The `seq` of the last event that you know. Default: from the first that is kept. */
  readonly after?: number | undefined;
  /** Begin with so many of the newest instead; 0 for new ones only. */
  readonly tail?: number | undefined;
  /** Default true: go on as they happen. False: stop after those that are there. */
  readonly follow?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

async function* eventsThere(transport: Transport, path: string, options: EventsOptions): AsyncGenerator<SandboxEvent> {
  const { signal } = options;
  let after = options.after;
  for (;;) {
    const tail = after === undefined ? options.tail : undefined;
    const page: EventList = await transport.json("GET", path, { query: { follow: 0, after, tail }, signal });
    yield* page.events;
    if (page.nextAfter === null) return;
    after = page.nextAfter;
  }
}

async function* eventsFollowed(
  transport: Transport,
  path: string,
  options: EventsOptions,
): AsyncGenerator<SandboxEvent> {
  const { signal } = options;
  const reconnects = new Reconnects(transport.retry, signal);
  let after = options.after;
  for (;;) {
    let failure = new HoldfastError("server_unreachable", "the server closed the connection");
    try {
      const tail = after === undefined ? options.tail : undefined;
      const response = await transport.send("GET", path, { query: { after, tail }, signal });
      reconnects.connected();
      for await (const { id, type, data } of serverSentEvents(chunksOf(transport, response, { signal }))) {
        if (type === "end") return;
        if (id !== undefined) after = Number(id);
        if (data === "") continue;
        reconnects.succeeded();
        yield JSON.parse(data) as SandboxEvent;
      }
    } catch (reason) {
      failure = transport.failure(reason, signal);
      if (!isPassing(failure)) throw failure;
    }
    await reconnects.wait(failure);
  }
}

/** Comes back by itself, with its cursor, when the connection breaks. Ends after the end of the sandbox, if it is one's. */
export function events(transport: Transport, path: string, options: EventsOptions = {}): AsyncGenerator<SandboxEvent> {
  return (options.follow ?? true) ? eventsFollowed(transport, path, options) : eventsThere(transport, path, options);
}

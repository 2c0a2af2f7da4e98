/** What happened: as server-sent events that go on, or a page of them. */
import { type EventList, invalidArgument } from "@holdfast/protocol";
import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from "fastify";
import type { z } from "zod";
import type { ServerParts } from "../parts.js";
import type { EventRow } from "../store/store.js";
import { logFault } from "./errors.js";
import { queryOf, sandboxId } from "./input.js";
import type { OpenStreams, ResponseStream } from "./response-stream.js";
import { queries } from "./schemas.js";
import { until } from "./until.js";
import { sandboxEvent } from "./views.js";

const KEEPALIVE_MS = 15_000;
const RECONNECT_MS = 1000;

function eventText(row: EventRow): string {
  return `id: ${row.seq}\ndata: ${JSON.stringify(sandboxEvent(row))}\n\n`;
}

/** The cursor of the query, or the one that a browser sends when it comes back; that one is newer. */
function cursorOf(request: FastifyRequest, query: z.output<typeof queries.events>): number | undefined {
  const last = request.headers["last-event-id"];
  if (last === undefined || last === "") return query.after;
  if (typeof last !== "string" || !/^\d{1,15}$/.test(last)) {
    throw invalidArgument("Last-Event-ID", last, "the id of an event");
  }
  return Number(last);
}

export function eventRoutes(parts: ServerParts, streams: OpenStreams): FastifyPluginAsync {
  const { sandboxes, log } = parts;

  /** Just before the newest ones. */
  async function cursorBefore(request: FastifyRequest, tail: number, id: string | undefined): Promise<number> {
    const newest = await sandboxes.events(request.caller, {
      sandboxId: id,
      newestFirst: true,
      limit: Math.max(tail, 1),
    });
    const oldest = newest.at(-1);
    if (oldest === undefined) return 0;
    return tail === 0 ? oldest.seq : oldest.seq - 1;
  }

  async function page(
    request: FastifyRequest,
    query: { readonly sandboxId: string | undefined; readonly after: number; readonly limit: number },
  ): Promise<EventList> {
    const rows = await sandboxes.events(request.caller, query);
    return {
      events: rows.map(sandboxEvent),
      nextAfter: rows.length < query.limit ? null : (rows.at(-1)?.seq ?? null),
    };
  }

  async function follow(
    stream: ResponseStream,
    request: FastifyRequest,
    query: { readonly sandboxId: string | undefined; readonly after: number },
  ): Promise<void> {
    stream.keepAlive(": keepalive\n\n", KEEPALIVE_MS);
    const rows = sandboxes.followEvents(request.caller, query, stream.closed);
    for await (const row of until(rows, [stream.closed])) {
      if (!(await stream.write(eventText(row)))) return;
      // Nothing happens to a sandbox after its end. Said aloud, so that nobody comes back to wait for more.
      if (query.sandboxId !== undefined && row.kind === "ended") break;
    }
  }

  async function events(request: FastifyRequest, reply: FastifyReply, id?: string): Promise<EventList | undefined> {
    const query = queryOf(request, queries.events);
    const row = id === undefined ? undefined : await sandboxes.find(request.caller, id);
    const cursor = cursorOf(request, query);
    if (query.tail !== undefined && query.after !== undefined) {
      throw invalidArgument("tail", query.tail, "no tail together with after");
    }
    const after = cursor ?? (query.tail === undefined ? 0 : await cursorBefore(request, query.tail, id));
    if (!query.follow) return page(request, { sandboxId: id, after, limit: query.limit });

    const stream = streams.prepare(reply, "end");
    stream.begin({ "content-type": "text/event-stream" });
    try {
      // With the cursor, whoever is cut off before the first event comes back to the same place.
      await stream.write(`retry: ${RECONNECT_MS}\nid: ${after}\n\n`);
      if (row?.status === "ended") await sendAll(stream, request, { sandboxId: id, after });
      else await follow(stream, request, { sandboxId: id, after });
      await stream.write("event: end\ndata: {}\n\n");
    } catch (reason) {
      logFault(log, reason, { stream: "events" });
    } finally {
      stream.end();
    }
    return undefined;
  }

  /** Everything that there is about a sandbox that has ended. */
  async function sendAll(
    stream: ResponseStream,
    request: FastifyRequest,
    query: { readonly sandboxId: string | undefined; readonly after: number },
  ): Promise<void> {
    const limit = 500;
    for (let after = query.after; ; ) {
      const rows = await sandboxes.events(request.caller, { ...query, after, limit });
      for (const row of rows) if (!(await stream.write(eventText(row)))) return;
      if (rows.length < limit) return;
      after = rows.at(-1)?.seq ?? after;
    }
  }

  return async (app) => {
    app.get("/events", { exposeHeadRoute: false }, (request, reply) => events(request, reply));
    app.get("/sandboxes/:id/events", { exposeHeadRoute: false }, (request, reply) =>
      events(request, reply, sandboxId(request)),
    );
  };
}

/** Bodies that are not ours to understand: they are passed on as they come. */
import { Readable } from "node:stream";
import { HoldfastError } from "@holdfast/protocol";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { boundUnreadBody } from "../http/plane.js";

/** The body of the routes of this instance stays unread until the route reads it. */
export function acceptRawBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _payload, done) => done(null));
  // Whoever comes over the operator's socket has not passed the place where this is done for all others.
  app.addHook("onRequest", async (request, reply) => boundUnreadBody(request.raw, reply.raw));
}

/** The body, piece by piece. Leaving the loop early does not close the connection: the answer has yet to go out. */
export async function* bodyChunks(request: FastifyRequest): AsyncGenerator<Buffer> {
  try {
    yield* request.raw.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
  } catch (reason) {
    throw new HoldfastError("canceled", "the client went away before the body was whole", { cause: reason });
  }
}

export function bodyStream(request: FastifyRequest): Readable {
  return Readable.from(bodyChunks(request), { objectMode: false });
}

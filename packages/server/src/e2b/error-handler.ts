/** Answers for whatever a route of E2B's throws. */
import { HoldfastError } from "@holdfast/protocol";
import type { FastifyReply, FastifyRequest } from "fastify";
import { e2bFailure } from "./error-body.js";

function sandboxIdOf(request: FastifyRequest): string | undefined {
  const params: unknown = request.params;
  if (typeof params !== "object" || params === null || !("sandboxID" in params)) return undefined;
  return typeof params.sandboxID === "string" ? params.sandboxID : undefined;
}

/** A root file system that a template names and that is gone is the server's trouble, and the message has its path. */
function isMissingImage(reason: unknown): boolean {
  if (!(reason instanceof HoldfastError) || reason.code !== "image_not_found") return false;
  const { template, image, field } = reason.details;
  return template === undefined && image === undefined && field === undefined;
}

export function answerE2bError(reason: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const failure = e2bFailure(isMissingImage(reason) ? undefined : reason, {
    requestId: request.id,
    sandboxId: sandboxIdOf(request),
    contentType: request.headers["content-type"],
  });
  if (failure.status >= 500 && failure.status !== 501 && failure.status !== 503) {
    request.log.error({ err: reason, requestId: request.id }, "a request failed");
  }
  if (failure.retryAfterSeconds !== undefined) void reply.header("retry-after", String(failure.retryAfterSeconds));
  // Fastify closes the connection after a body that it could not read, and a client that still sends would lose the
  // answer. Whoever owns the connection bounds what is left of the body.
  void reply.removeHeader("connection");
  return reply.code(failure.status).type("application/json; charset=utf-8").send(JSON.stringify(failure.body));
}

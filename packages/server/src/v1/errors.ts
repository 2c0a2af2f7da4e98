/** What our own API answers when it does not do what was asked: the error itself, as JSON, with its status. */
import { errorSpecs, HoldfastError } from "@holdfast/protocol";
import type { FastifyInstance, FastifyReply } from "fastify";
import type { Logger } from "pino";

const DEFAULT_RETRY_AFTER_SECONDS = 1;

function statusOf(reason: unknown): number | undefined {
  const status = (reason as { statusCode?: unknown } | null)?.statusCode;
  return typeof status === "number" ? status : undefined;
}

/** Fastify refuses some requests before we see them; it says so by a status. */
function refusalOfFastify(reason: Error, status: number): HoldfastError {
  if (status === 413) return new HoldfastError("request_too_large", "body: larger than this route takes");
  if (status === 404) return new HoldfastError("route_not_found", reason.message);
  return new HoldfastError("invalid_argument", `request: ${reason.message}`, { details: { field: "request" } });
}

/** What is not meant for the caller stays in the log. */
export function errorForCaller(reason: unknown): HoldfastError {
  if (reason instanceof HoldfastError) return reason;
  const status = statusOf(reason);
  if (reason instanceof Error && status !== undefined && status >= 400 && status < 500) {
    return refusalOfFastify(reason, status);
  }
  return new HoldfastError("engine_fault", "the server failed at this request", {
    hint: "Its log says why.",
    cause: reason,
  });
}

/** What is our fault, not the caller's and not the program's, is for the operator to see. */
export function logFault(log: Logger, reason: unknown, context: Readonly<Record<string, unknown>>): void {
  const error = errorForCaller(reason);
  if (errorSpecs[error.code].http === 500) log.error({ ...context, err: error.cause ?? error }, error.message);
}

function retryAfterSeconds(error: HoldfastError): number {
  const seconds = error.details.retryAfterSeconds;
  return typeof seconds === "number" && seconds > 0 ? Math.ceil(seconds) : DEFAULT_RETRY_AFTER_SECONDS;
}

export function sendError(reply: FastifyReply, error: HoldfastError): FastifyReply {
  const status = errorSpecs[error.code].http;
  if (status === 429 || status === 503) void reply.header("retry-after", retryAfterSeconds(error));
  return reply.status(status).send(error.toJSON());
}

export function answerWithErrors(app: FastifyInstance, log: Logger): void {
  app.setErrorHandler((reason, request, reply) => {
    logFault(log, reason, { method: request.method, route: request.routeOptions.url });
    return sendError(reply, errorForCaller(reason));
  });
  app.setNotFoundHandler((request, reply) => {
    const { pathname } = new URL(request.url, "http://localhost");
    return sendError(
      reply,
      new HoldfastError("route_not_found", `there is no ${request.method} ${pathname.slice(0, 200)}`, {
        hint: "docs/api.md lists the routes.",
      }),
    );
  });
}

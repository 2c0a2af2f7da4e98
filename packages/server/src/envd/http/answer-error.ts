/** Errors of envd's HTTP routes: `{code, message}`, the code being the status. */
import { errorSpecs, HoldfastError } from "@holdfast/protocol";
import type { FastifyError, FastifyReply, FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { isConnectionLost } from "../../http/connection-lost.js";

const OWN_STATUS: Partial<Record<HoldfastError["code"], number>> = {
  user_not_found: 401,
  // The sandbox ended under the request, and the next one is answered so by the dispatcher.
  sandbox_ended: 502,
};

function statusOf(error: HoldfastError): number {
  // A file system that cannot do what was asked for is not our failure.
  if (error.code === "guest_fault" && error.details.errno === "ENOTSUP") return 400;
  return OWN_STATUS[error.code] ?? errorSpecs[error.code].http;
}

function fromAny(reason: unknown): { status: number; message: string } {
  if (reason instanceof HoldfastError) return { status: statusOf(reason), message: reason.message };
  const { statusCode, message } = reason as Partial<FastifyError>;
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) {
    return { status: statusCode, message: message ?? "bad request" };
  }
  return { status: 500, message: "internal error" };
}

export function createErrorAnswer(log: Logger) {
  return (reason: unknown, request: FastifyRequest, reply: FastifyReply): void => {
    const { status, message } = fromAny(reason);
    if (status >= 500 && status !== 502 && status !== 507 && !isConnectionLost(reason)) {
      log.error({ err: reason, method: request.method, route: request.routeOptions.url }, "a request to envd failed");
    }
    if (reply.raw.headersSent || reply.raw.destroyed) {
      // Half an answer cannot be taken back; breaking off says that it is half.
      request.raw.socket.destroy();
      return;
    }
    void reply
      .code(status)
      .type("application/json; charset=utf-8")
      .send(JSON.stringify({ code: status, message }));
  };
}

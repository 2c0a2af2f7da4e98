/** Counts the requests of an application by the patterns of its routes, of which there are only so many. */
import type { FastifyInstance } from "fastify";
import type { CountedRequest, Metrics } from "./metrics.js";

/** To be called before any route is registered. */
export function countRequests(app: FastifyInstance, metrics: Metrics, plane: CountedRequest["plane"]): void {
  app.addHook("onResponse", async (request, reply) => {
    const { url } = request.routeOptions;
    const isKnown = url !== undefined && !request.is404;
    metrics.answered({
      plane,
      method: isKnown ? request.method : "other",
      route: isKnown ? url : "none",
      status: reply.statusCode,
    });
  });
}

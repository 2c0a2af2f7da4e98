/** `GET /metrics`, for Prometheus. */
import type { IncomingMessage } from "node:http";
import type { FastifyPluginAsync } from "fastify";
import type { MetricsAccess } from "../config/metrics-access.js";
import { addressOf } from "../http/address.js";
import { requireMetricsAccess } from "./access.js";
import type { Exposition } from "./exposition.js";

export interface MetricsRouteParts {
  readonly exposition: Pick<Exposition, "text" | "contentType">;
  readonly access: MetricsAccess;
  readonly key: string;
  readonly domain: string | null;
}

const PATH = /^\/metrics(?:\?|$)/;

/** Also answered while the server stops: what it does then is worth knowing. */
export function isScrape(request: IncomingMessage, domain: string | null): boolean {
  return (
    (request.method === "GET" || request.method === "HEAD") &&
    PATH.test(request.url ?? "") &&
    addressOf(request, { domain }).plane === "control"
  );
}

export function metricsRoutes(parts: MetricsRouteParts): FastifyPluginAsync {
  return async (app) => {
    app.get("/metrics", async (request, reply) => {
      // Any page may read what a key protects, because it must hold the key. This may be open to the whole machine.
      reply.raw.removeHeader("Access-Control-Allow-Origin");
      requireMetricsAccess(request.raw, parts);
      return reply
        .header("Content-Type", parts.exposition.contentType)
        .header("Cache-Control", "no-store")
        .send(await parts.exposition.text());
    });
  };
}

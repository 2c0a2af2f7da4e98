/** The bodies of our own API: JSON, or nothing. */
import type { IncomingMessage } from "node:http";
import { invalidArgument } from "@holdfast/protocol";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { readJsonBody } from "../http/json-body.js";

declare module "fastify" {
  interface FastifyContextConfig {
    /** For a route whose bodies may be larger than others. */
    maxBodyBytes?: number;
  }
}

const MAX_BYTES = 1024 * 1024;
const TIMEOUT_MS = 30_000;

export function acceptJson(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", async (request: FastifyRequest, payload: IncomingMessage) => {
    const type = request.headers["content-type"];
    if (type !== undefined && !/^application\/json\s*(;|$)/i.test(type.trim())) {
      throw invalidArgument("content-type", type, "application/json");
    }
    const announced = request.headers["content-length"];
    return readJsonBody(payload, {
      maxBytes: request.routeOptions.config.maxBodyBytes ?? MAX_BYTES,
      timeoutMs: TIMEOUT_MS,
      announcedBytes: announced === undefined ? undefined : Number(announced),
    });
  });
}

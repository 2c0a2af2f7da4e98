/** The control plane as one application: E2B's API and our own, behind a key. */
import { HoldfastError } from "@holdfast/protocol";
import { type FastifyBaseLogger, type FastifyInstance, type FastifyRequest, fastify } from "fastify";
import { answerE2bError } from "../e2b/error-handler.js";
import { e2bRoutes } from "../e2b/routes.js";
import { countRequests } from "../metrics/count-requests.js";
import { type MetricsRouteParts, metricsRoutes } from "../metrics/routes.js";
import type { ServerParts } from "../parts.js";
import { v1Routes } from "../v1/routes.js";
import { requireKey } from "./authenticate.js";
import { readJsonBody } from "./json-body.js";
import { stayForLargeBodies } from "./plane.js";
import { routableUrl, UNREADABLE, unreadablePath } from "./routable-url.js";

export interface ControlAppOptions {
  /** Who may see the metrics, and where they come from. Without it there are none to be seen. */
  readonly metrics?: MetricsRouteParts | undefined;
  /** The domain that clients reach sandboxes below, with a port if it needs one; null if there is none. */
  readonly publicDomain?: (() => string | null) | undefined;
}

const MAX_BODY_BYTES = 1024 * 1024;
const MAX_BODY_MS = 30_000;

/** Longer than any head of a request: a long name is unknown like any other, never an answer of its own kind. */
const MAX_PARAMETER_CHARACTERS = 1024 * 1024;

function pathOf(url: string): string {
  return (url.split("?", 1)[0] ?? "").slice(0, 200);
}

/** Turns requests away while the server stops. Sandboxes do not notice. */
function refuseWhenStopping(app: FastifyInstance): () => void {
  let isStopping = false;
  app.addHook("preClose", async () => {
    isStopping = true;
  });
  return () => {
    if (!isStopping) return;
    throw new HoldfastError("server_stopping", "the server is being stopped", {
      hint: "Sandboxes run on. Try again in a moment.",
    });
  };
}

function acceptJson(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("application/json", async (request: FastifyRequest, payload: FastifyRequest["raw"]) => {
    const length = request.headers["content-length"];
    return readJsonBody(payload, {
      maxBytes: MAX_BODY_BYTES,
      timeoutMs: MAX_BODY_MS,
      announcedBytes: length === undefined ? undefined : Number(length),
    });
  });
}

export async function createControlApp(parts: ServerParts, options: ControlAppOptions = {}): Promise<FastifyInstance> {
  const app: FastifyInstance = fastify({
    loggerInstance: parts.log as FastifyBaseLogger,
    disableRequestLogging: true,
    trustProxy: false,
    bodyLimit: MAX_BODY_BYTES,
    return503OnClosing: false,
    routerOptions: { maxParamLength: MAX_PARAMETER_CHARACTERS },
    rewriteUrl: routableUrl,
  });
  stayForLargeBodies(app);
  countRequests(app, parts.metrics, "api");
  acceptJson(app);
  app.setErrorHandler(answerE2bError);
  const refuse = refuseWhenStopping(app);

  app.get("/health", async (_request, reply) => {
    refuse();
    return reply.code(204).send();
  });

  if (options.metrics !== undefined) await app.register(metricsRoutes(options.metrics));

  await app.register(async (keyed) => {
    requireKey(keyed, parts.keys);
    keyed.addHook("onRequest", async () => refuse());
    keyed.setNotFoundHandler((request) => {
      throw new HoldfastError("route_not_found", `there is no ${request.method} ${pathOf(request.originalUrl)}`);
    });
    keyed.all(UNREADABLE, async (request, reply) => {
      const error = unreadablePath();
      if (!request.originalUrl.startsWith("/v1/")) throw error;
      return reply.code(400).send(error.toJSON());
    });
    await keyed.register(e2bRoutes(parts, options));
    await keyed.register(v1Routes(parts), { prefix: "/v1" });
  });
  await app.ready();
  return app;
}

/** envd, as SDKs know it from inside every sandbox. Here it is one application outside of all of them. */
import Fastify, { type FastifyInstance } from "fastify";
import { stayForLargeBodies } from "../http/plane.js";
import { routableUrl, UNREADABLE, unreadablePath } from "../http/routable-url.js";
import { countRequests } from "../metrics/count-requests.js";
import type { ServerParts } from "../parts.js";
import { requireAccessToken } from "./http/access.js";
import { createErrorAnswer } from "./http/answer-error.js";
import { registerEnvdHttp } from "./http/routes.js";
import { registerEnvdRpc } from "./rpc/routes.js";

/** For what is read whole. Files are not. */
const BODY_LIMIT_BYTES = 1024 * 1024;

export async function createEnvdApp(parts: ServerParts): Promise<FastifyInstance> {
  const app = Fastify({
    logger: false,
    trustProxy: false,
    bodyLimit: BODY_LIMIT_BYTES,
    exposeHeadRoutes: false,
    rewriteUrl: routableUrl,
  });
  stayForLargeBodies(app);
  countRequests(app, parts.metrics, "envd");
  app.setErrorHandler(createErrorAnswer(parts.log));
  app.setNotFoundHandler(async (_request, reply) => reply.code(404).send({ code: 404, message: "not found" }));
  requireAccessToken(app, parts.sandboxes);
  app.all(UNREADABLE, async () => {
    throw unreadablePath();
  });
  await registerEnvdHttp(app, parts);
  await registerEnvdRpc(app, parts);
  await app.ready();
  return app;
}

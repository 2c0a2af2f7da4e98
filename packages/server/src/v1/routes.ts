/**
 * Our own API, `/v1`: for what E2B has no word for. The routes translate between HTTP and `parts.sandboxes`; who asks is
 * decided before they are reached.
 */
import type { FastifyPluginAsync } from "fastify";
import type { ServerParts } from "../parts.js";
import { acceptJson } from "./accept-json.js";
import { buildRoutes } from "./build-routes.js";
import { commandRoutes } from "./command-routes.js";
import { answerWithErrors } from "./errors.js";
import { eventRoutes } from "./event-routes.js";
import { fileRoutes } from "./file-routes.js";
import { imageRoutes } from "./image-routes.js";
import { OpenStreams } from "./response-stream.js";
import { sandboxRoutes } from "./sandbox-routes.js";

export function v1Routes(parts: ServerParts): FastifyPluginAsync {
  return async (app) => {
    const streams = new OpenStreams();
    app.addHook("preClose", async () => streams.closeAll());
    answerWithErrors(app, parts.log);
    acceptJson(app);
    await app.register(sandboxRoutes(parts));
    await app.register(commandRoutes(parts, streams));
    await app.register(fileRoutes(parts, streams));
    await app.register(eventRoutes(parts, streams));
    await app.register(buildRoutes(parts, streams));
    await app.register(imageRoutes(parts, streams));
  };
}

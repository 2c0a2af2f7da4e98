/** E2B's control plane: its sandboxes' routes, v1 and v2, and what it says about the rest. */
import type { FastifyPluginAsync } from "fastify";
import type { ServerParts } from "../parts.js";
import { answerE2bError } from "./error-handler.js";
import { lifecycleRoutes } from "./lifecycle-routes.js";
import { listRoutes } from "./list-routes.js";
import { notImplementedRoutes } from "./not-implemented-routes.js";
import { observeRoutes } from "./observe-routes.js";
import { type E2bOptions, Surroundings } from "./surroundings.js";
import { templateRoutes } from "./template-routes.js";

export function e2bRoutes(parts: ServerParts, options: E2bOptions = {}): FastifyPluginAsync {
  return async (app) => {
    const surroundings = new Surroundings(parts, options);
    app.setErrorHandler(answerE2bError);
    lifecycleRoutes(app, surroundings);
    listRoutes(app, surroundings);
    observeRoutes(app, surroundings);
    templateRoutes(app, surroundings);
    notImplementedRoutes(app);
  };
}

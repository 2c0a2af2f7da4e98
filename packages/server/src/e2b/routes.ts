/** E2B's control plane: sandboxes, templates, snapshots and volumes, and what it says about the rest. */
import type { FastifyPluginAsync } from "fastify";
import type { ServerParts } from "../parts.js";
import { answerE2bError } from "./error-handler.js";
import { lifecycleRoutes } from "./lifecycle-routes.js";
import { listRoutes } from "./list-routes.js";
import { notImplementedRoutes } from "./not-implemented-routes.js";
import { observeRoutes } from "./observe-routes.js";
import { snapshotRoutes } from "./snapshot-routes.js";
import { type E2bOptions, Surroundings } from "./surroundings.js";
import { templateBuildRoutes } from "./template-build-routes.js";
import { templateRoutes } from "./template-routes.js";
import { TemplateUploads } from "./template-uploads.js";
import { volumeRoutes } from "./volume-routes.js";

export function e2bRoutes(parts: ServerParts, options: E2bOptions = {}): FastifyPluginAsync {
  return async (app) => {
    const surroundings = new Surroundings(parts, options);
    app.setErrorHandler(answerE2bError);
    await surroundings.builds.recover();
    lifecycleRoutes(app, surroundings);
    listRoutes(app, surroundings);
    observeRoutes(app, surroundings);
    snapshotRoutes(app, surroundings);
    templateRoutes(app, surroundings);
    templateBuildRoutes(app, surroundings, await TemplateUploads.open(parts.store));
    volumeRoutes(app, surroundings);
    notImplementedRoutes(app);
  };
}

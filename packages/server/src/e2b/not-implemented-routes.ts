/** What E2B has and this server does not: said plainly, so that nobody takes it for a broken request. */
import { HoldfastError } from "@holdfast/protocol";
import type { FastifyInstance, HTTPMethods } from "fastify";

const CONFIGURE_TEMPLATES = "Templates are root file systems named under `templates` in the server's configuration.";
const COPY_FILES = "Copy files in and out of the sandbox instead.";
const USE_ENV = "Pass values as envVars when the sandbox is made.";
const PAUSE = "Pause the sandbox to keep its state, and connect to it later.";

type Missing = readonly [methods: readonly HTTPMethods[], path: string, instead: string];

const MISSING: readonly Missing[] = [
  [["POST"], "/templates", CONFIGURE_TEMPLATES],
  [["GET", "POST", "PATCH", "DELETE"], "/templates/:templateID", CONFIGURE_TEMPLATES],
  [["POST"], "/templates/:templateID/builds/:buildID", CONFIGURE_TEMPLATES],
  [["GET"], "/templates/:templateID/builds/:buildID/status", CONFIGURE_TEMPLATES],
  [["GET"], "/templates/:templateID/builds/:buildID/logs", CONFIGURE_TEMPLATES],
  [["GET"], "/templates/:templateID/files/:hash", CONFIGURE_TEMPLATES],
  [["GET"], "/templates/:templateID/tags", CONFIGURE_TEMPLATES],
  [["POST", "DELETE"], "/templates/tags", CONFIGURE_TEMPLATES],
  [["GET", "POST"], "/v2/templates", CONFIGURE_TEMPLATES],
  [["GET", "PATCH", "DELETE"], "/v2/templates/:templateID", CONFIGURE_TEMPLATES],
  [["POST"], "/v2/templates/:templateID/builds/:buildID", CONFIGURE_TEMPLATES],
  [["POST"], "/v3/templates", CONFIGURE_TEMPLATES],
  [["POST"], "/sandboxes/:sandboxID/fork", PAUSE],
  [["POST"], "/sandboxes/:sandboxID/snapshots", PAUSE],
  [["GET"], "/snapshots", PAUSE],
  [["GET", "POST"], "/volumes", COPY_FILES],
  [["GET", "DELETE"], "/volumes/:volumeID", COPY_FILES],
  [["GET", "PATCH", "DELETE"], "/volumecontent/:volumeID/path", COPY_FILES],
  [["GET", "POST"], "/volumecontent/:volumeID/dir", COPY_FILES],
  [["GET", "PUT"], "/volumecontent/:volumeID/file", COPY_FILES],
  [["GET", "POST"], "/secrets", USE_ENV],
  [["GET", "POST", "DELETE"], "/secrets/:secretID", USE_ENV],
  [["GET"], "/teams/:teamID/metrics", "GET /v1/host has the server's own figures."],
  [["GET"], "/teams/:teamID/metrics/max", "GET /v1/host has the server's own figures."],
];

export function notImplementedRoutes(app: FastifyInstance): void {
  for (const [methods, path, instead] of MISSING) {
    for (const method of methods) {
      const route = `${method} ${path.replaceAll(/:(\w+)/g, "{$1}")}`;
      app.route({
        method,
        url: path,
        exposeHeadRoute: false,
        // Before any body is read: a client that uploads is told at once.
        onRequest: async () => {
          throw new HoldfastError("not_implemented", `${route} is not implemented by this server yet`, {
            hint: instead,
            details: { route },
          });
        },
        handler: async () => undefined,
      });
    }
  }
}

/** What E2B has and this server does not: said plainly, so that nobody takes it for a broken request. */
import { HoldfastError } from "@holdfast/protocol";
import type { FastifyInstance, HTTPMethods } from "fastify";

const BUILD_BY_STEPS = "Templates are built of steps: POST /v3/templates, as E2B's SDKs do since version 2.";
const USE_ENV = "Pass values as envVars when the sandbox is made.";

type Missing = readonly [methods: readonly HTTPMethods[], path: string, instead: string];

const MISSING: readonly Missing[] = [
  [["POST"], "/templates", BUILD_BY_STEPS],
  [["POST"], "/templates/:templateID", BUILD_BY_STEPS],
  [["POST"], "/templates/:templateID/builds/:buildID", BUILD_BY_STEPS],
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

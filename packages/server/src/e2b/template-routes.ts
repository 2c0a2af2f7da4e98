/** What sandboxes can be made from, and whom a key belongs to. */
import { HoldfastError } from "@holdfast/protocol";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { z } from "zod";
import type { Template } from "../sandboxes/templates.js";
import type { Caller } from "../sandboxes/types.js";
import type { SandboxQuery } from "../store/store.js";
import { queryOf } from "./request-input.js";
import { ENVD_VERSION, sizeShape } from "./shapes.js";
import type { Surroundings } from "./surroundings.js";

const COUNT_PAGE = 500;

const templatesQuery = z.strictObject({ teamID: z.string().optional() });

/** E2B's command line tool takes the key that it goes on with from here: it gets back what it came with. */
function presentedSecret(request: FastifyRequest): string {
  const key = request.headers["x-api-key"];
  if (typeof key === "string") return key;
  return /^Bearer (.+)$/i.exec(request.headers.authorization ?? "")?.[1] ?? "";
}

function teamIdOf(caller: Caller): string {
  return caller.kind === "operator" ? "operator" : caller.keyId;
}

export function templateRoutes(app: FastifyInstance, surroundings: Surroundings): void {
  const { sandboxes, keys } = surroundings.parts;
  // Templates are read from the configuration when the server starts, and are what they are from then on.
  const loadedAt = new Date().toISOString();

  /** Of the sandboxes that are remembered: those alive, and those that ended not long ago. */
  async function useOf(caller: Caller, template: string) {
    let spawnCount = 0;
    let lastSpawnedAt: string | null = null;
    let after: SandboxQuery["after"];
    for (;;) {
      const page = await sandboxes.list(caller, { template, limit: COUNT_PAGE, after });
      lastSpawnedAt ??= page[0]?.createdAt.toISOString() ?? null;
      spawnCount += page.length;
      after = page.at(-1);
      if (page.length < COUNT_PAGE) return { spawnCount, lastSpawnedAt };
    }
  }

  async function templateShape(caller: Caller, template: Template) {
    return {
      templateID: template.name,
      buildID: template.name,
      buildStatus: "ready",
      buildCount: 1,
      names: [template.name],
      aliases: [template.name],
      public: true,
      ...sizeShape(template.limits),
      envdVersion: ENVD_VERSION,
      createdAt: loadedAt,
      updatedAt: loadedAt,
      createdBy: null,
      ...(await useOf(caller, template.name)),
    };
  }

  app.get("/teams", async (request) => {
    const teamID = teamIdOf(request.caller);
    const key = (await keys.list()).find((candidate) => candidate.id === teamID);
    return [{ teamID, name: key?.name ?? teamID, apiKey: presentedSecret(request), isDefault: true }];
  });

  app.get("/templates", async (request) => {
    const { teamID } = queryOf(request, templatesQuery);
    if (teamID !== undefined && teamID !== teamIdOf(request.caller)) {
      throw new HoldfastError("access_denied", "teamID: this key belongs to another team", {
        hint: "GET /teams names the key's own.",
      });
    }
    const templates = surroundings.templates.names().flatMap((name) => surroundings.templates.find(name) ?? []);
    return Promise.all(templates.map((template) => templateShape(request.caller, template)));
  });

  app.get<{ Params: { alias: string } }>("/templates/aliases/:alias", async (request) => {
    const { name } = surroundings.template(request.params.alias);
    return { templateID: name, public: true };
  });
}

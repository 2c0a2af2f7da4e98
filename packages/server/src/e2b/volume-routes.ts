/** E2B's volumes: made and removed with a key. Their content is in volume-content-routes.ts. */
import type { FastifyInstance } from "fastify";
import { z } from "zod";
import type { Volume } from "../volumes/volumes.js";
import { bodyOf } from "./request-input.js";
import type { Surroundings } from "./surroundings.js";
import { volumeContentRoutes } from "./volume-content-routes.js";

interface VolumeRoute {
  readonly Params: { readonly volumeID: string };
}

const createBody = z.strictObject({ name: z.string({ error: "a name" }) });

export function volumeRoutes(app: FastifyInstance, surroundings: Surroundings): void {
  const { volumes } = surroundings.parts;

  const shape = (volume: Volume) => ({ volumeID: volume.id, name: volume.name });
  // Clients go to `api.<domain>` for the content, or to E2B_VOLUME_API_URL: both are this server.
  const secretShape = (volume: Volume) => ({
    ...shape(volume),
    token: volumes.tokenOf(volume),
    domain: surroundings.access.domain,
  });

  app.post("/volumes", async (request, reply) => {
    const { name } = bodyOf(request, createBody);
    return reply.code(201).send(secretShape(await volumes.create(request.caller, name)));
  });

  app.get("/volumes", async (request) => (await volumes.list(request.caller)).map(shape));

  app.get<VolumeRoute>("/volumes/:volumeID", async (request) =>
    secretShape(await volumes.find(request.caller, request.params.volumeID)),
  );

  app.delete<VolumeRoute>("/volumes/:volumeID", async (request, reply) => {
    await volumes.remove(request.caller, request.params.volumeID);
    return reply.code(204).send();
  });

  app.register(async (content) => volumeContentRoutes(content, surroundings));
}

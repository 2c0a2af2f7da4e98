/** Sandboxes made, looked at, kept alive, paused, resumed and killed. */
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { z } from "zod";
import { clientGone } from "../http/client-gone.js";
import { createBodySchema, createRequestFrom } from "./create-request.js";
import { networkFromUpdate, networkUpdateSchema } from "./network.js";
import { bodyOf, type SandboxRoute, sandboxIdOf, timeoutSeconds } from "./request-input.js";
import { nameOf, type Surroundings } from "./surroundings.js";
import { resolveVolumeMounts } from "./volume-mounts.js";

/** The versions of a path differ in what they take for granted. */
const V1 = { prefix: "", defaultTimeoutSeconds: 15 };
const V2 = { prefix: "/v2", defaultTimeoutSeconds: 300 };

/** How long a refresh keeps a sandbox alive that does not say. */
const DEFAULT_REFRESH_SECONDS = 15;

function idempotencyTokenOf(request: FastifyRequest): string | undefined {
  const token = request.headers["idempotency-key"];
  if (token === undefined) return undefined;
  if (typeof token !== "string" || !/^[\x20-\x7e]{1,255}$/.test(token)) {
    throw invalidArgument("Idempotency-Key", String(token).slice(0, 100), "1 to 255 printable characters");
  }
  return token;
}

export function lifecycleRoutes(app: FastifyInstance, surroundings: Surroundings): void {
  const { sandboxes, config } = surroundings.parts;
  const { maxTimeoutSeconds } = config;
  const bodies = {
    create: createBodySchema({ maxTimeoutSeconds }),
    timeout: z.strictObject({ timeout: timeoutSeconds(0, maxTimeoutSeconds) }),
    connect: z.strictObject({
      timeout: timeoutSeconds(1, maxTimeoutSeconds).optional(),
      memory: z.boolean().optional(),
    }),
    pause: z.strictObject({ memory: z.boolean().optional() }),
    resume: z.strictObject({
      timeout: timeoutSeconds(1, maxTimeoutSeconds).optional(),
      memory: z.boolean().optional(),
      autoPause: z.boolean().optional(),
    }),
    refresh: z.strictObject({ duration: timeoutSeconds(0, maxTimeoutSeconds).optional() }),
  };

  for (const version of [V1, V2]) {
    const defaultTimeoutSeconds = Math.min(version.defaultTimeoutSeconds, maxTimeoutSeconds);

    app.post(`${version.prefix}/sandboxes`, async (request, reply) => {
      const idempotencyToken = idempotencyTokenOf(request);
      const body = bodyOf(request, bodies.create);
      const source = await surroundings.own.require(request.caller, body.templateID);
      const wanted = createRequestFrom(body, {
        template: surroundings.own.referenceOf(source),
        limits: surroundings.own.limitsOf(source),
        volumes: await resolveVolumeMounts(surroundings.parts.volumes, request.caller, body.volumeMounts ?? []),
        defaultTimeoutSeconds,
      });
      const row = await sandboxes.create(request.caller, wanted, {
        idempotencyToken,
        signal: clientGone(reply.raw),
      });
      if (row.status === "ended") {
        throw new HoldfastError("idempotency_conflict", `the sandbox ${row.id} of this Idempotency-Key has ended`, {
          hint: `${row.ending?.message ?? ""} Use a new key for a new sandbox.`.trim(),
        });
      }
      return reply.code(201).send(await surroundings.shown(row));
    });

    app.post<SandboxRoute>(`${version.prefix}/sandboxes/:sandboxID/connect`, async (request, reply) => {
      const id = sandboxIdOf(request);
      const body = bodyOf(request, bodies.connect);
      await surroundings.alive(request.caller, id);
      const timeoutMs = (body.timeout ?? defaultTimeoutSeconds) * 1000;
      const { row, resumed } = await sandboxes.resume(request.caller, id, { timeoutMs, memory: body.memory });
      return reply.code(resumed ? 201 : 200).send(await surroundings.shown(row));
    });
  }

  app.get<SandboxRoute>("/sandboxes/:sandboxID", async (request) =>
    surroundings.shownInDetail(await surroundings.alive(request.caller, sandboxIdOf(request))),
  );

  app.delete<SandboxRoute>("/sandboxes/:sandboxID", async (request, reply) => {
    const id = sandboxIdOf(request);
    await surroundings.alive(request.caller, id);
    await sandboxes.kill(request.caller, id, nameOf(request.caller));
    return reply.code(204).send();
  });

  app.post<SandboxRoute>("/sandboxes/:sandboxID/timeout", async (request, reply) => {
    const id = sandboxIdOf(request);
    const { timeout } = bodyOf(request, bodies.timeout);
    await surroundings.alive(request.caller, id);
    await sandboxes.setTimeout(request.caller, id, timeout * 1000);
    return reply.code(204).send();
  });

  app.post<SandboxRoute>("/sandboxes/:sandboxID/refreshes", async (request, reply) => {
    const id = sandboxIdOf(request);
    const { duration } = bodyOf(request, bodies.refresh);
    await surroundings.alive(request.caller, id);
    const timeoutMs = (duration ?? Math.min(DEFAULT_REFRESH_SECONDS, maxTimeoutSeconds)) * 1000;
    await sandboxes.setTimeout(request.caller, id, timeoutMs, { extendOnly: true });
    return reply.code(204).send();
  });

  app.post<SandboxRoute>("/sandboxes/:sandboxID/pause", async (request, reply) => {
    const id = sandboxIdOf(request);
    const { memory } = bodyOf(request, bodies.pause);
    await surroundings.alive(request.caller, id);
    await sandboxes.pause(request.caller, id, { memory: memory ?? true });
    return reply.code(204).send();
  });

  app.post<SandboxRoute>("/sandboxes/:sandboxID/resume", async (request, reply) => {
    const id = sandboxIdOf(request);
    const body = bodyOf(request, bodies.resume);
    const before = await surroundings.alive(request.caller, id);
    if (body.autoPause !== undefined && body.autoPause !== (before.onTimeout !== "kill")) {
      throw new HoldfastError("not_implemented", "autoPause cannot be changed by a resume on this server", {
        hint: `This sandbox was made with autoPause: ${before.onTimeout !== "kill"}. Leave it out, or say so at create.`,
        details: { field: "autoPause" },
      });
    }
    if (before.status === "running") throw alreadyRunning(id);
    const timeoutMs = (body.timeout ?? Math.min(V1.defaultTimeoutSeconds, maxTimeoutSeconds)) * 1000;
    const { row, resumed } = await sandboxes.resume(request.caller, id, { timeoutMs, memory: body.memory });
    if (!resumed) throw alreadyRunning(id);
    return reply.code(201).send(await surroundings.shown(row));
  });

  app.put<SandboxRoute>("/sandboxes/:sandboxID/network", async (request, reply) => {
    const id = sandboxIdOf(request);
    const body = bodyOf(request, networkUpdateSchema);
    const before = await surroundings.alive(request.caller, id);
    await sandboxes.setNetwork(request.caller, id, networkFromUpdate(before.network, body));
    return reply.code(204).send();
  });
}

function alreadyRunning(id: string): HoldfastError {
  return new HoldfastError("sandbox_exists", `Sandbox "${id}" is already running`, {
    hint: "Use connect, which takes a running sandbox too.",
  });
}

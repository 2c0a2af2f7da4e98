/** Sandboxes: made, found, changed, ended; and the host they are on. */
import {
  invalidArgument,
  type Postmortem,
  resolveSandboxLimits,
  type SandboxInfo,
  type SandboxUsage,
} from "@holdfast/protocol";
import type { FastifyPluginAsync, FastifyRequest } from "fastify";
import { clientGone } from "../http/client-gone.js";
import type { ServerParts } from "../parts.js";
import type { SandboxRow } from "../store/store.js";
import { given } from "./given.js";
import { bodyOf, expectNothing, queryOf, sandboxId } from "./input.js";
import { cursorAfter, parseCursor, parseMetadataFilter } from "./list-query.js";
import { bodies, queries } from "./schemas.js";
import { callerName, sandboxEvent, sandboxInfo } from "./views.js";

const MAX_POSTMORTEM_EVENTS = 1000;

function idempotencyToken(request: FastifyRequest): string | undefined {
  const token = request.headers["idempotency-key"];
  if (token === undefined) return undefined;
  if (typeof token !== "string" || !/^[\x21-\x7e]{1,255}$/.test(token)) {
    throw invalidArgument("Idempotency-Key", token, "1 to 255 printable ASCII characters without spaces");
  }
  return token;
}

export function sandboxRoutes(parts: ServerParts): FastifyPluginAsync {
  const { sandboxes } = parts;
  const infoOf = (row: SandboxRow): SandboxInfo => sandboxInfo(row, sandboxes.pressureOf(row.id));

  async function usage(request: FastifyRequest): Promise<SandboxUsage> {
    expectNothing(request);
    const id = sandboxId(request);
    const look = await sandboxes.look(request.caller, id);
    const { limits } = await sandboxes.find(request.caller, id);
    return {
      at: look.at.toISOString(),
      memoryBytes: look.memoryBytes,
      memoryPeakBytes: look.memoryPeakBytes,
      memoryLimitBytes: look.memoryNowBytes,
      memoryCeilingBytes: look.memoryLimitBytes,
      pids: look.pids,
      pidsLimit: limits.pids,
      cpuMs: look.cpuMs,
      cpuMillis: Math.round(look.cpuUsedPct * look.cpuCount * 10),
      cpuLimitMillis: limits.cpuMillis,
      diskBytes: look.diskBytes,
      diskLimitBytes: look.diskLimitBytes,
    };
  }

  async function postmortem(request: FastifyRequest): Promise<Postmortem> {
    expectNothing(request);
    const id = sandboxId(request);
    const found = await sandboxes.postmortem(request.caller, id);
    const events = await sandboxes.events(request.caller, {
      sandboxId: id,
      newestFirst: true,
      limit: MAX_POSTMORTEM_EVENTS,
    });
    return {
      ...found,
      sandbox: infoOf(await sandboxes.find(request.caller, id)),
      events: events.reverse().map(sandboxEvent),
    };
  }

  return async (app) => {
    app.post("/sandboxes", async (request, reply) => {
      const body = bodyOf(request, bodies.create);
      const limits = given(body.limits);
      resolveSandboxLimits(limits);
      const row = await sandboxes.create(
        request.caller,
        {
          ...body,
          template: body.template ?? "base",
          limits,
          network: { allowInternetAccess: null, allowPublicTraffic: true, settings: null },
        },
        { idempotencyToken: idempotencyToken(request), signal: clientGone(reply.raw) },
      );
      return reply.status(201).send(infoOf(row));
    });

    app.get("/sandboxes", async (request) => {
      const query = queryOf(request, queries.list);
      const rows = await sandboxes.list(request.caller, {
        statuses: query.status ?? ["creating", "running", "paused"],
        metadata: query.metadata === undefined ? undefined : parseMetadataFilter(query.metadata),
        template: query.template,
        after: query.cursor === undefined ? undefined : parseCursor(query.cursor),
        limit: query.limit + 1,
      });
      const page = rows.slice(0, query.limit);
      const last = page.at(-1);
      return {
        sandboxes: page.map(infoOf),
        nextCursor: rows.length > page.length && last !== undefined ? cursorAfter(last) : null,
      };
    });

    app.get("/sandboxes/:id", async (request) => {
      expectNothing(request);
      return infoOf(await sandboxes.find(request.caller, sandboxId(request)));
    });

    app.delete("/sandboxes/:id", async (request) => {
      expectNothing(request);
      const row = await sandboxes.find(request.caller, sandboxId(request));
      return row.ending ?? sandboxes.kill(request.caller, row.id, callerName(request.caller));
    });

    app.post("/sandboxes/:id/timeout", async (request) => {
      const { timeoutMs } = bodyOf(request, bodies.timeout);
      return infoOf(await sandboxes.setTimeout(request.caller, sandboxId(request), timeoutMs));
    });

    app.post("/sandboxes/:id/pause", async (request) => {
      const options = bodyOf(request, bodies.pause);
      return infoOf(await sandboxes.pause(request.caller, sandboxId(request), options));
    });

    app.post("/sandboxes/:id/resume", async (request) => {
      const options = bodyOf(request, bodies.resume);
      return infoOf((await sandboxes.resume(request.caller, sandboxId(request), options)).row);
    });

    app.patch("/sandboxes/:id/limits", async (request) => {
      const limits = given(bodyOf(request, bodies.limits));
      resolveSandboxLimits(limits);
      return infoOf(await sandboxes.resize(request.caller, sandboxId(request), limits));
    });

    app.get("/sandboxes/:id/usage", usage);
    app.get("/sandboxes/:id/postmortem", postmortem);
    app.get("/host", async (request) => {
      expectNothing(request);
      return sandboxes.host(request.caller);
    });
  };
}

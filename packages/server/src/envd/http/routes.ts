/** envd's plain HTTP routes: health, metrics, environment and files. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { readJsonBody } from "../../http/json-body.js";
import { liveSandboxOf } from "../../http/live-request.js";
import type { ServerParts } from "../../parts.js";
import { CONTROL_ROUTES, requireFileAccess } from "./access.js";
import { composeFiles } from "./compose.js";
import { serveDownload } from "./download.js";
import { parseFileQuery } from "./query.js";
import { takeUpload } from "./upload.js";

const MIB = 1024 * 1024;
const COMPOSE_BODY = { maxBytes: MIB, timeoutMs: 60_000 } as const;
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] as const;

type EnvdParts = Pick<ServerParts, "sandboxes">;

async function sendMetrics({ sandboxes }: EnvdParts, request: FastifyRequest): Promise<Record<string, number>> {
  const { id } = liveSandboxOf(request.raw);
  const sample = await sandboxes.look({ kind: "operator" }, id);
  return {
    ts: Math.floor(sample.at.getTime() / 1000),
    cpu_count: sample.cpuCount,
    cpu_used_pct: sample.cpuUsedPct,
    mem_total: sample.memoryLimitBytes,
    mem_used: sample.memoryBytes,
    mem_cache: sample.memoryCacheBytes,
    mem_total_mib: Math.floor(sample.memoryLimitBytes / MIB),
    mem_used_mib: Math.floor(sample.memoryBytes / MIB),
    disk_used: sample.diskBytes,
    disk_total: sample.diskLimitBytes,
  };
}

async function download({ sandboxes }: EnvdParts, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const query = parseFileQuery(request.raw.url ?? "");
  const { id, sandbox } = liveSandboxOf(request.raw);
  requireFileAccess(request.raw, query, "read", sandboxes.envdToken(id));
  await serveDownload(sandbox.files, query, request.raw, reply.raw);
  reply.hijack();
}

async function upload({ sandboxes }: EnvdParts, request: FastifyRequest) {
  const query = parseFileQuery(request.raw.url ?? "");
  const { id, sandbox } = liveSandboxOf(request.raw);
  requireFileAccess(request.raw, query, "write", sandboxes.envdToken(id));
  return takeUpload(sandbox.files, query, request.raw);
}

/** Bodies stay on the request: whoever needs one reads it as a stream. */
function leaveBodiesAlone(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _payload, done) => done(null));
}

export async function registerEnvdHttp(app: FastifyInstance, parts: EnvdParts): Promise<void> {
  await app.register(async (scope) => {
    leaveBodiesAlone(scope);
    scope.get("/health", async (_request, reply) => reply.code(204).send());
    scope.get("/metrics", async (request) => sendMetrics(parts, request));
    scope.get("/envs", async (request) => liveSandboxOf(request.raw).sandbox.spec.env);
    scope.route({
      method: ["GET", "HEAD"],
      url: "/files",
      handler: async (request, reply) => download(parts, request, reply),
    });
    scope.post("/files", async (request) => upload(parts, request));
    scope.post("/files/compose", async (request) => {
      const announcedBytes = Number(request.headers["content-length"] ?? 0);
      const body = await readJsonBody(request.raw, { ...COMPOSE_BODY, announcedBytes });
      return composeFiles(liveSandboxOf(request.raw).sandbox.files, body);
    });
    for (const url of CONTROL_ROUTES) {
      scope.route({ method: [...METHODS], url, handler: (_request, reply) => reply.callNotFound() });
    }
  });
}

/** Templates built: asked for, their files sent, started, and followed. */
import { HoldfastError } from "@holdfast/protocol";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { z } from "zod";
import { keyNeeded } from "../http/authenticate.js";
import { validate } from "../http/validate.js";
import { keyIdOf } from "../sandboxes/key-id.js";
import type { TemplateBuildRow, TemplateRow } from "../store/store.js";
import { acceptRawBodies } from "../v1/raw-body.js";
import { storableBody } from "../v1/storable-body.js";
import { readLogRange, readStatusPage, shownEntry } from "./build-logs.js";
import { LOG_LEVELS } from "./log-entries.js";
import { bodyOf, queryInteger, queryOf } from "./request-input.js";
import type { Surroundings } from "./surroundings.js";
import { buildStartSchema, FILES_HASH } from "./template-recipe.js";
import { originOf, type TemplateUploads } from "./template-uploads.js";

const MAX_LOG_PAGE = 100;
const MAX_FILE_BYTES = 10 * 1024 ** 3;
const MAX_TAGS = 100;
/** As E2B bounds them; what this host has is looked at beside. */
const MIN_MEMORY_MB = 128;
const MAX_MEGABYTES = 1024 ** 3;

interface BuildRoute {
  readonly Params: { readonly templateID: string; readonly buildID: string };
}
interface FileRoute {
  readonly Params: { readonly templateID: string; readonly hash: string };
}

const whole = (min: number, max: number) => {
  const error = `a whole number from ${min} to ${max}`;
  return z.int({ error }).min(min, { error }).max(max, { error });
};
const size = {
  cpuCount: whole(1, 1024).nullish(),
  memoryMB: whole(MIN_MEMORY_MB, MAX_MEGABYTES).nullish(),
  minFreeDiskMb: whole(1, MAX_MEGABYTES).nullish(),
  teamID: z.string().nullish(),
};
const name = z.string({ error: "a name" });
const requestV3Body = z.strictObject({
  name: name.nullish(),
  alias: name.nullish(),
  tags: z
    .array(z.string())
    .max(MAX_TAGS, { error: `at most ${MAX_TAGS}` })
    .nullish(),
  ...size,
});
const requestV2Body = z.strictObject({ alias: name, ...size });

const level = z.enum(LOG_LEVELS, { error: `one of ${LOG_LEVELS.join(", ")}` }).default("debug");
const statusQuery = z.strictObject({
  logsOffset: queryInteger(0, Number.MAX_SAFE_INTEGER).default(0),
  limit: queryInteger(1, MAX_LOG_PAGE).default(MAX_LOG_PAGE),
  level,
});
const logsQuery = z.strictObject({
  cursor: queryInteger(0, 8_640_000_000_000_000).optional(),
  direction: z.enum(["forward", "backward"], { error: "forward or backward" }).default("backward"),
  limit: queryInteger(1, MAX_LOG_PAGE).default(MAX_LOG_PAGE),
  level,
  source: z.enum(["temporary", "persistent"], { error: "temporary or persistent" }).optional(),
});
const noQuery = z.strictObject({});
const hashParameter = z.object({ hash: z.string().regex(FILES_HASH, { error: "64 lower-case hex digits" }) });
const uploadQuery = z.strictObject({
  key: z.string().max(64, { error: "at most 64 characters" }),
  expires: queryInteger(0, 8_640_000_000_000),
  signature: z.string(),
});

export function templateBuildRoutes(app: FastifyInstance, surroundings: Surroundings, uploads: TemplateUploads): void {
  const { store, images } = surroundings.parts;
  const { own, builds } = surroundings;

  async function buildOf(
    request: FastifyRequest<BuildRoute>,
  ): Promise<{ readonly template: TemplateRow; readonly row: TemplateBuildRow }> {
    const template = await own.requireRow(request.caller, request.params.templateID);
    return { template, row: await builds.find(template, request.params.buildID) };
  }

  async function request(
    asking: FastifyRequest,
    wanted: Omit<z.output<typeof requestV3Body>, "alias" | "teamID"> & { readonly name: string },
  ) {
    const { template, buildId, tags } = await builds.request(asking.caller, {
      name: wanted.name,
      tags: wanted.tags ?? [],
      cpuCount: wanted.cpuCount ?? undefined,
      memoryMb: wanted.memoryMB ?? undefined,
      diskMb: wanted.minFreeDiskMb ?? undefined,
    });
    return {
      templateID: template.id,
      buildID: buildId,
      public: false,
      names: [template.name],
      aliases: [template.name],
      tags,
    };
  }

  app.post("/v3/templates", async (asking, reply) => {
    const body = bodyOf(asking, requestV3Body);
    // E2B has called it by both.
    const wanted = validate(name, body.name ?? body.alias ?? undefined, "name");
    return reply.code(202).send(await request(asking, { ...body, name: wanted }));
  });

  app.post("/v2/templates", async (asking, reply) => {
    const { alias, ...body } = bodyOf(asking, requestV2Body);
    return reply.code(202).send(await request(asking, { ...body, name: alias }));
  });

  app.get<FileRoute>("/templates/:templateID/files/:hash", async (asking, reply) => {
    queryOf(asking, noQuery);
    const { hash } = validate(hashParameter, asking.params, "path");
    const template = await own.requireRow(asking.caller, asking.params.templateID);
    const upload = { keyId: keyIdOf(asking.caller), templateId: template.id, hash };
    return reply.code(201).send({
      present: (await builds.fileOf(asking.caller, hash)) !== undefined,
      url: `${originOf(asking.raw)}${uploads.addressOf(upload)}`,
    });
  });

  app.post<BuildRoute>("/v2/templates/:templateID/builds/:buildID", async (asking, reply) => {
    const body = bodyOf(asking, buildStartSchema);
    const { template, row } = await buildOf(asking);
    await builds.start(asking.caller, template, row, body);
    return reply.code(202).header("content-length", "0").send();
  });

  app.get<BuildRoute>("/templates/:templateID/builds/:buildID/status", async (asking) => {
    const query = queryOf(asking, statusQuery);
    const { template, row: given } = await buildOf(asking);
    // Before the log is read: what is said to have ended has said everything.
    const { row, build, tail, failureMessage } = await builds.state(given);
    const shown = { leadingSteps: row.leadingSteps, failureMessage };
    const ended = row.state === "ready" || row.state === "error";
    return {
      templateID: template.id,
      buildID: row.id,
      status: row.state,
      logs: [],
      logEntries:
        build === undefined
          ? []
          : await readStatusPage(build, shown, {
              offset: query.logsOffset,
              limit: query.limit,
              minimumLevel: query.level,
              ended,
            }),
      ...(row.failure === null
        ? {}
        : { reason: { ...row.failure, logEntries: tail.map((entry) => shownEntry(entry, shown)) } }),
    };
  });

  app.get<BuildRoute>("/templates/:templateID/builds/:buildID/logs", async (asking) => {
    const query = queryOf(asking, logsQuery);
    const { row, build, failureMessage } = await builds.state((await buildOf(asking)).row);
    if (build === undefined) return { logs: [] };
    const shown = { leadingSteps: row.leadingSteps, failureMessage };
    const range = {
      cursorMs: query.cursor,
      direction: query.direction,
      limit: query.limit,
      minimumLevel: query.level,
      ended: row.state !== "building",
    };
    return { logs: await readLogRange(build, shown, range) };
  });

  app.register(async (raw) => {
    acceptRawBodies(raw);
    raw.put<FileRoute>(
      "/template-files/:templateID/:hash",
      { config: { provesItself: true } },
      async (asking, reply) => {
        const { templateID, hash } = asking.params;
        const { key: keyId, ...proof } = proofOf(asking);
        uploads.require({ keyId, templateId: templateID, hash }, proof);
        await requireAlive(keyId, templateID);
        const content = bounded(storableBody(asking, images.store.directory), Number(asking.headers["content-length"]));
        const { digest } = await images.store.blobs.add(content);
        await store.templates.putFile({ keyId, hash, digest, uploadedAt: new Date() });
        return reply.code(200).send();
      },
    );
  });

  /** The key and the template may be gone since the address was given. */
  async function requireAlive(keyId: string, templateId: string): Promise<void> {
    const template = await store.templates.find(templateId);
    const key = keyId === keyIdOf({ kind: "operator" }) ? { revokedAt: null } : await store.keys.find(keyId);
    if (template?.keyId === keyId && key !== undefined && key.revokedAt === null) return;
    throw new HoldfastError("unauthenticated", "the template or the key of this address is gone");
  }
}

/** One that makes no sense is none. */
function proofOf(request: FastifyRequest): z.output<typeof uploadQuery> {
  try {
    return queryOf(request, uploadQuery);
  } catch (reason) {
    if (HoldfastError.from(reason).code !== "invalid_argument") throw reason;
    throw keyNeeded();
  }
}

function tooLarge(): HoldfastError {
  return new HoldfastError("request_too_large", `body: expected at most ${MAX_FILE_BYTES} bytes, got more`, {
    details: { field: "body", maxBytes: MAX_FILE_BYTES },
  });
}

/** What is announced to be too large is not begun with. */
async function* bounded(content: AsyncIterable<Buffer>, announcedBytes: number): AsyncGenerator<Buffer> {
  if (announcedBytes > MAX_FILE_BYTES) throw tooLarge();
  let received = 0;
  for await (const chunk of content) {
    received += chunk.length;
    if (received > MAX_FILE_BYTES) throw tooLarge();
    yield chunk;
  }
}

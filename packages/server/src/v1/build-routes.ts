/** Builds: the files they need, their start, their log, their end. */
import type { Build } from "@holdfast/images";
import type { BuildLine, MissingBlobs } from "@holdfast/protocol";
import { type Digest, parseBuilderOptions, parseRecipe } from "@holdfast/recipe";
import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from "fastify";
import { validate } from "../http/validate.js";
import type { ServerParts } from "../parts.js";
import { authsByRegistry, requireRegistriesOf } from "../registries/registry-access.js";
import { ownerOf } from "../sandboxes/sources.js";
import { findBuild, newNameFor } from "./image-access.js";
import { imageBodies, imageParams, imageQueries } from "./image-schemas.js";
import { buildInfo } from "./image-views.js";
import { bodyOf, expectNothing, queryOf } from "./input.js";
import { beginLines, keepLinesAlive, sendLines, writeLine } from "./line-stream.js";
import { acceptRawBodies } from "./raw-body.js";
import type { OpenStreams, ResponseStream } from "./response-stream.js";
import { storableBody } from "./storable-body.js";
import { until } from "./until.js";
import { callerName } from "./views.js";

/** A recipe has 4 MiB at most; its texts may need more as JSON, and what is asked for beside it needs little. */
const MAX_BUILD_BYTES = 8 * 1024 * 1024;
/** For those who do not follow a log. */
const SILENT_MS = 500;

export function buildRoutes(parts: ServerParts, streams: OpenStreams): FastifyPluginAsync {
  const { images, log, sandboxes } = parts;

  const buildOf = (request: FastifyRequest): Build =>
    findBuild(images, request.caller, validate(imageParams.build, request.params, "path").build);

  async function follow(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const query = queryOf(request, imageQueries.log);
    const build = buildOf(request);
    const stream = streams.prepare(reply, "end");
    beginLines(stream);
    await sendLines(stream, log, async () => {
      keepLinesAlive(stream);
      await sendLog(stream, build, query);
    });
  }

  /** What has become of the steps is told whenever it has changed, before the line that came after it. */
  async function sendLog(
    stream: ResponseStream,
    build: Build,
    query: { readonly from: number; readonly follow: boolean },
  ): Promise<void> {
    let told = "";
    const tell = async (): Promise<boolean> => {
      const info = buildInfo(build.info());
      const now = JSON.stringify([info.state, info.steps]);
      if (now === told) return true;
      told = now;
      return writeLine(stream, { type: "build", build: info } satisfies BuildLine);
    };
    await tell();
    // What is there is read at once; a log that has nothing more to say for a moment has been read to its end.
    const silent = new AbortController();
    const timer = query.follow ? undefined : setTimeout(() => silent.abort(), SILENT_MS);
    try {
      const signal = AbortSignal.any([stream.closed, silent.signal]);
      for await (const entry of until(build.log({ from: query.from, signal }), [stream.closed])) {
        timer?.refresh();
        if (!(await tell()) || !(await writeLine(stream, { type: "log", ...entry } satisfies BuildLine))) return;
      }
    } finally {
      clearTimeout(timer);
    }
    if (stream.closed.aborted) return;
    const last = buildInfo(build.info());
    if (query.follow || last.endedAt !== null)
      await writeLine(stream, { type: "ended", build: last } satisfies BuildLine);
  }

  return async (app) => {
    app.post("/images/blobs/missing", async (request): Promise<MissingBlobs> => {
      const { digests } = bodyOf(request, imageBodies.missing);
      return { missing: images.store.blobs.missing(digests as Digest[]) };
    });

    app.post("/images/builds", { config: { maxBodyBytes: MAX_BUILD_BYTES } }, async (request, reply) => {
      const body = bodyOf(request, imageBodies.build);
      sandboxes.requireCalm("build");
      const recipe = parseRecipe(body.recipe, "recipe");
      await requireRegistriesOf(parts, request.caller, recipe);
      const build = await images.builder.start({
        recipe,
        builder: body.builder === undefined ? undefined : parseBuilderOptions(body.builder, "builder"),
        owner: ownerOf(request.caller),
        names: body.names.map((name) => newNameFor(request.caller, name)),
        forceFrom: body.forceFrom,
        authFor: authsByRegistry(body.registryAuths),
      });
      // Whoever wants to know asks for the log; nobody need hear of it here.
      build.image.catch(() => {});
      return reply.status(202).send(buildInfo(build.info()));
    });

    app.get("/images/builds", async (request) => {
      expectNothing(request);
      const owner = ownerOf(request.caller);
      const builds = images.builder.list(owner === null ? {} : { owner });
      // The operator's images are everybody's to use. What their builds ran and said is not.
      return { builds: builds.filter((build) => owner === null || build.owner === owner).map(buildInfo) };
    });

    app.get("/images/builds/:build", async (request) => {
      expectNothing(request);
      return buildInfo(buildOf(request).info());
    });

    app.delete("/images/builds/:build", async (request) => {
      expectNothing(request);
      const build = buildOf(request);
      await build.cancel(callerName(request.caller));
      return buildInfo(build.info());
    });

    app.get("/images/builds/:build/log", { exposeHeadRoute: false }, follow);

    await app.register(async (raw) => {
      acceptRawBodies(raw);
      raw.put("/images/blobs/:digest", async (request, reply) => {
        const { digest } = validate(imageParams.digest, request.params, "path");
        queryOf(request, imageQueries.none);
        await images.store.blobs.put(digest as Digest, storableBody(request, images.store.directory));
        return reply.status(204).send();
      });
    });
  };
}

/** Images: listed, named, removed, moved in and out; snapshots and forks. */

import { Writable } from "node:stream";
import {
  exportImage,
  imageInfo,
  importImage,
  namesAskedFor,
  type Progress,
  pullImage,
  pushImage,
} from "@holdfast/images";
import { type ForkList, HoldfastError, type SnapshotInfo, type TransferLine } from "@holdfast/protocol";
import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from "fastify";
import { validate } from "../http/validate.js";
import type { ServerParts } from "../parts.js";
import { mayReachFor, requireRegistry } from "../registries/registry-access.js";
import { ownerOf, requireImage } from "../sandboxes/sources.js";
import { logFault } from "./errors.js";
import { given } from "./given.js";
import { findImage, findToRemove, nameFor, newNameFor, requireOperator } from "./image-access.js";
import { imageBodies, imageParams, imageQueries } from "./image-schemas.js";
import { namesById } from "./image-views.js";
import { bodyOf, expectNothing, queryOf, sandboxId } from "./input.js";
import { beginLines, keepLinesAlive, sendLines, writeLine } from "./line-stream.js";
import { acceptRawBodies, bodyChunks } from "./raw-body.js";
import type { OpenStreams, ResponseStream } from "./response-stream.js";
import { sandboxInfo } from "./views.js";

/** So often is told how far a transfer is. */
const PROGRESS_MS = 250;

export function imageRoutes(parts: ServerParts, streams: OpenStreams): FastifyPluginAsync {
  const { images, sandboxes, log } = parts;

  const namedIn = (request: FastifyRequest) => validate(imageParams.image, request.params, "path").image;
  const imageOf = (request: FastifyRequest) => findImage(images, request.caller, namedIn(request));
  const wholeImageOf = (request: FastifyRequest) => requireImage(images, request.caller, namedIn(request));

  const shown = (request: FastifyRequest, record: Parameters<typeof imageInfo>[1]) =>
    imageInfo(images.store, record, { viewer: ownerOf(request.caller) });

  /** A transfer that is followed line by line; it ends when its client leaves. */
  async function transfer(
    reply: FastifyReply,
    work: (options: { signal: AbortSignal; onProgress: (progress: Progress) => void }) => Promise<TransferLine>,
  ): Promise<void> {
    const stream = streams.prepare(reply, "end");
    beginLines(stream);
    await sendLines(stream, log, async () => {
      keepLinesAlive(stream);
      let lastAt = 0;
      const onProgress = (progress: Progress): void => {
        if (Date.now() - lastAt < PROGRESS_MS) return;
        lastAt = Date.now();
        void writeLine(stream, { type: "progress", ...progress } satisfies TransferLine);
      };
      await writeLine(stream, await work({ signal: stream.closed, onProgress }));
    });
  }

  async function export_(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const query = queryOf(request, imageQueries.export);
    const record = wholeImageOf(request);
    const stream = streams.prepare(reply, "cut");
    const owner = ownerOf(request.caller);
    const known = images.store.names({ imageId: record.id, ...(owner === null ? {} : { owner }) });
    const names = namesAskedFor(
      known.map(({ name }) => name),
      namedIn(request),
    );
    try {
      await exportImage(images.context, record, { ...query, to: writableTo(stream), names, signal: stream.closed });
      stream.end();
    } catch (reason) {
      if (!stream.hasBegun) throw reason;
      // After the first byte the only way to say that something is missing is to break off.
      logFault(log, reason, { stream: "export" });
      stream.cut();
    }
  }

  return async (app) => {
    app.get("/images", async (request) => {
      expectNothing(request);
      const owner = ownerOf(request.caller);
      const visible = owner === null ? {} : { owner };
      const names = namesById(images.store.names(visible));
      const records = images.store.list(visible);
      return {
        images: records.map((record) =>
          imageInfo(images.store, record, { viewer: owner, names: names.get(record.id) ?? [] }),
        ),
      };
    });

    app.get("/images/:image", async (request) => {
      expectNothing(request);
      const record = imageOf(request);
      return imageInfo(images.store, record, {
        viewer: ownerOf(request.caller),
        sizes: await images.store.sizes(record),
      });
    });

    app.delete("/images/:image", async (request) => {
      expectNothing(request);
      const id = findToRemove(images, request.caller, namedIn(request));
      const { layers, blobs, builds, freedBytes } = await images.store.remove(id);
      return { images: 1, layers: layers.length, blobs, builds, freedBytes };
    });

    app.post("/images/:image/names", async (request) => {
      const name = newNameFor(request.caller, bodyOf(request, imageBodies.name).name);
      const record = imageOf(request);
      // For the operator: a key's image stays the key's, since a name for everybody would show it to everybody.
      images.store.setName(request.caller.kind === "operator" ? { ...name, owner: record.owner } : name, record.id);
      return shown(request, record);
    });

    app.delete("/images/:image/names", async (request) => {
      const name = nameFor(request.caller, queryOf(request, imageQueries.name).name);
      const record = imageOf(request);
      const has = images.store
        .names({ imageId: record.id, owner: name.owner })
        .some(({ name: own }) => own.name === name.name && own.tag === name.tag && own.owner === name.owner);
      if (!has || !images.store.removeName(name)) {
        throw new HoldfastError("image_not_found", `image ${record.id} is not called ${name.name}:${name.tag} by you`);
      }
      return shown(request, record);
    });

    app.post("/images/prune", async (request) => {
      const options = bodyOf(request, imageBodies.prune);
      requireOperator(request.caller, "prune images");
      const pruned = await images.store.prune(given(options));
      return { ...pruned, images: pruned.images.length, layers: pruned.layers.length };
    });

    app.post("/images/pull", async (request, reply) => {
      const { reference, names, ...options } = bodyOf(request, imageBodies.pull);
      const wanted = names.length === 0 ? undefined : names.map((name) => newNameFor(request.caller, name));
      await requireRegistry(parts, request.caller, reference, options);
      await transfer(reply, async (transferring) => {
        const owner = ownerOf(request.caller);
        const record = await pullImage(images.context, reference, {
          ...options,
          ...transferring,
          mayReach: mayReachFor(parts, request.caller),
          owner,
          names: wanted,
        });
        return { type: "image", image: shown(request, record) };
      });
    });

    app.post("/images/:image/push", async (request, reply) => {
      const { reference, ...options } = bodyOf(request, imageBodies.push);
      const record = wholeImageOf(request);
      await requireRegistry(parts, request.caller, reference, options);
      await transfer(reply, async (transferring) => {
        const mayReach = mayReachFor(parts, request.caller);
        const { digest } = await pushImage(images.context, record, reference, {
          ...options,
          ...transferring,
          mayReach,
        });
        return { type: "pushed", digest };
      });
    });

    app.get("/images/:image/export", { exposeHeadRoute: false }, export_);

    app.post("/sandboxes/:id/snapshots", async (request, reply): Promise<SnapshotInfo> => {
      const { name } = bodyOf(request, imageBodies.snapshot);
      const names = name === undefined ? [] : [newNameFor(request.caller, name)];
      const { image, report, holds } = await sandboxes.snapshot(request.caller, sandboxId(request), { names });
      const { method, sizeBytes, frozenMs, syncMs } = report;
      void reply.status(201);
      return { image: shown(request, image), holds, method, sizeBytes, frozenMs, syncMs };
    });

    app.post("/sandboxes/:id/fork", async (request, reply): Promise<ForkList> => {
      const options = bodyOf(request, imageBodies.fork);
      const { forks, report } = await sandboxes.fork(request.caller, sandboxId(request), options);
      void reply.status(201);
      return {
        forks: forks.map((fork) =>
          "error" in fork
            ? { error: fork.error.toJSON() }
            : { sandbox: sandboxInfo(fork.row, sandboxes.pressureOf(fork.row.id)), restored: "files" as const },
        ),
        method: report.method,
      };
    });

    await app.register(async (raw) => {
      acceptRawBodies(raw);
      raw.post("/images/import", async (request, reply) => {
        const query = queryOf(request, imageQueries.import);
        const names = (query.name ?? []).map((name) => newNameFor(request.caller, name));
        const length = Number(request.headers["content-length"]);
        const record = await importImage(
          images.context,
          { stream: bodyChunks(request), sizeBytes: Number.isSafeInteger(length) ? length : undefined },
          { owner: ownerOf(request.caller), names, reference: query.reference, platform: query.platform },
        );
        return reply.status(201).send(shown(request, record));
      });
    });
  };
}

/** What is exported, as an answer that begins with its first byte: until then a failure still has a status. */
function writableTo(stream: ResponseStream): Writable {
  return new Writable({
    highWaterMark: 1024 * 1024,
    write(chunk: Buffer, _encoding, callback) {
      if (!stream.hasBegun) stream.begin({ "content-type": "application/x-tar" });
      stream
        .write(chunk)
        .then((open) => callback(open ? null : new HoldfastError("canceled", "the client has gone")), callback);
    },
  });
}

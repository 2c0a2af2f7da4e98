/** The content of E2B's volumes, for whoever has a volume's own token: no key opens it. */
import type { Readable } from "node:stream";
import type { FileEntry } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { isSameSecret } from "../http/same-secret.js";
import { acceptRawBodies, bodyStream } from "../v1/raw-body.js";
import { ResponseStream } from "../v1/response-stream.js";
import { until } from "../v1/until.js";
import type { InsideVolume } from "../volumes/inside-volume.js";
import type { Volume } from "../volumes/volumes.js";
import { e2bFailure } from "./error-body.js";
import { bodyOf, queryInteger, queryOf } from "./request-input.js";
import type { Surroundings } from "./surroundings.js";

interface ContentRoute {
  readonly Params: { readonly volumeID: string };
}

/** Who commands in sandboxes run as: files from here are theirs unless said otherwise. */
const DEFAULT_OWNER = 1000;
/** Sandboxes have no more ids. */
const MAX_ID = 0xffff;
const MAX_MODE = 0o7777;
const MAX_DEPTH = 100;
const MAX_PATH_CHARACTERS = 4000;
const MAX_DATE_MS = 8.64e15;

const path = z
  .string({ error: "a path in the volume" })
  .min(1, { error: "a path in the volume" })
  .max(MAX_PATH_CHARACTERS, { error: `a path of at most ${MAX_PATH_CHARACTERS} characters` });
const flag = z
  .enum(["true", "false", "1", "0"], { error: "true or false" })
  .transform((given) => given === "true" || given === "1");
const pathQuery = z.strictObject({ path });
const listQuery = z.strictObject({ path, depth: queryInteger(1, MAX_DEPTH).default(1) });
const writeQuery = z.strictObject({
  path,
  uid: queryInteger(0, MAX_ID).default(DEFAULT_OWNER),
  gid: queryInteger(0, MAX_ID).default(DEFAULT_OWNER),
  mode: queryInteger(0, MAX_MODE).optional(),
  force: flag.default(false),
});
function whole(max: number) {
  const expected = `a whole number from 0 to ${max}`;
  return z.int({ error: expected }).min(0, { error: expected }).max(max, { error: expected });
}
const metadataBody = z.strictObject({
  uid: whole(MAX_ID).optional(),
  gid: whole(MAX_ID).optional(),
  mode: whole(MAX_MODE).optional(),
});

function timeText(ns: bigint): string {
  const ms = Number(ns / 1_000_000n);
  return new Date(Math.max(-MAX_DATE_MS, Math.min(MAX_DATE_MS, ms))).toISOString();
}

function entryShape(entry: FileEntry, inside: InsideVolume) {
  const shown = inside.shown(entry.path);
  const changed = timeText(entry.modifiedNs);
  return {
    name: shown === "/" ? shown : entry.name,
    type: entry.type === "other" ? ("unknown" as const) : entry.type,
    path: shown,
    size: entry.sizeBytes,
    mode: entry.mode,
    uid: entry.uid,
    gid: entry.gid,
    // Of a file it is known when it was changed; when it was read last is kept nowhere.
    atime: changed,
    mtime: changed,
    ctime: changed,
    ...(entry.link === undefined ? {} : { target: entry.link.target }),
  };
}

export function volumeContentRoutes(app: FastifyInstance, { parts }: Surroundings): void {
  const { volumes, log } = parts;
  const known = new WeakMap<FastifyRequest, Volume>();
  const options = { config: { provesItself: true }, exposeHeadRoute: false };

  // Before a byte of the body is read.
  app.addHook("onRequest", async (request) => {
    const { volumeID } = request.params as ContentRoute["Params"];
    const given = /^Bearer (.+)$/i.exec(request.headers.authorization ?? "")?.[1];
    const volume = given === undefined ? undefined : volumes.byToken(volumeID, (token) => isSameSecret(given, token));
    if (volume === undefined) {
      throw new HoldfastError("unauthenticated", "the volume's token is missing or wrong", {
        hint: "Send it as Authorization: Bearer; POST /volumes and GET /volumes/{volumeID} give it.",
      });
    }
    known.set(request, volume);
  });

  app.setErrorHandler((reason, request, reply) => {
    const failure = e2bFailure(reason, { requestId: request.id, contentType: request.headers["content-type"] });
    if (failure.status === 500) request.log.error({ err: reason, requestId: request.id }, "a request failed");
    if (failure.retryAfterSeconds !== undefined) void reply.header("retry-after", String(failure.retryAfterSeconds));
    void reply.removeHeader("connection");
    // In this part of E2B's API the code of an error is a word.
    return reply.code(failure.status).send({ ...failure.body, code: failure.body.error_code ?? "error" });
  });

  function within<T>(request: FastifyRequest<ContentRoute>, work: (inside: InsideVolume) => Promise<T>): Promise<T> {
    return volumes.content.use(known.get(request as FastifyRequest) as Volume, work);
  }

  app.get<ContentRoute>("/volumecontent/:volumeID/path", options, async (request) => {
    const query = queryOf(request, pathQuery);
    return within(request, async (inside) => {
      const at = await inside.at(query.path, { last: "itself" });
      return entryShape(await inside.files.stat(at), inside);
    });
  });

  app.patch<ContentRoute>("/volumecontent/:volumeID/path", options, async (request) => {
    const query = queryOf(request, pathQuery);
    const { mode, ...owner } = bodyOf(request, metadataBody);
    return within(request, async (inside) => {
      const at = await inside.at(query.path, { last: "itself" });
      const { type } = await inside.files.stat(at);
      if (type === "symlink" && mode !== undefined) {
        throw new HoldfastError("file_wrong_type", "mode: a link has none of its own", { details: { field: "mode" } });
      }
      // In this order: a change of owner takes set-id bits away.
      await inside.setOwner(at, owner);
      if (mode !== undefined) await inside.setMode(at, mode);
      return entryShape(await inside.files.stat(at), inside);
    });
  });

  app.delete<ContentRoute>("/volumecontent/:volumeID/path", options, async (request, reply) => {
    const query = queryOf(request, pathQuery);
    await within(request, async (inside) => {
      const at = await inside.at(query.path, { last: "itself" });
      if (inside.shown(at) === "/") {
        throw new HoldfastError(
          "invalid_argument",
          "path: expected something in the volume, not the volume's own root",
          {
            hint: "Remove what is in it, or the volume.",
            details: { field: "path" },
          },
        );
      }
      await inside.files.stat(at);
      await inside.files.remove(at, { recursive: true });
    });
    return reply.code(204).send();
  });

  app.get<ContentRoute>("/volumecontent/:volumeID/dir", options, async (request, reply) => {
    const query = queryOf(request, listQuery);
    await within(request, async (inside) => {
      const at = await inside.at(query.path, { last: "followed" });
      const entries = inside.files.list(at, { depth: query.depth });
      await sendList(reply, entries, (entry) => entryShape(entry, inside));
    });
    return reply;
  });

  app.post<ContentRoute>("/volumecontent/:volumeID/dir", options, async (request, reply) => {
    const { uid, gid, mode, force, ...query } = queryOf(request, writeQuery);
    const made = await within(request, async (inside) => {
      const at = await inside.at(query.path, { last: "followed" });
      const { entry, created } = await inside.files.makeDirectory(at, {
        parents: force,
        user: `${uid}:${gid}`,
        ...(mode === undefined ? {} : { mode }),
      });
      if (!created && !force) {
        throw new HoldfastError("file_exists", `path '${inside.shown(at)}' already exists`, {
          hint: "With force=true that is no error.",
        });
      }
      return entryShape(entry, inside);
    });
    return reply.code(201).send(made);
  });

  app.get<ContentRoute>("/volumecontent/:volumeID/file", options, async (request, reply) => {
    const query = queryOf(request, pathQuery);
    await within(request, async (inside) => {
      const at = await inside.at(query.path, { last: "followed" });
      const { entry, content } = await inside.files.read(at);
      await sendFile(reply, content, entry.sizeBytes);
    });
    return reply;
  });

  app.register(async (raw) => {
    acceptRawBodies(raw);
    raw.put<ContentRoute>("/volumecontent/:volumeID/file", options, async (request, reply) => {
      const { uid, gid, mode, force, ...query } = queryOf(request, writeQuery);
      const written = await within(request, async (inside) => {
        const at = await inside.at(query.path, { last: "followed" });
        const body = bodyStream(request);
        // It is destroyed when the write is given up; who waits for it is told by the write.
        body.on("error", () => {});
        try {
          return entryShape(
            await inside.files.write(at, body, { parents: force, user: `${uid}:${gid}`, mode }),
            inside,
          );
        } finally {
          body.destroy();
        }
      });
      return reply.code(201).send(written);
    });
  });

  /** After the first byte the only way to say that something is missing is to break off. */
  async function orCut(stream: ResponseStream, work: () => Promise<boolean>): Promise<void> {
    try {
      if (await work()) stream.end();
      else stream.cut();
    } catch (reason) {
      const { code, message } = HoldfastError.from(reason);
      log.warn({ code, error: message }, "an answer about a volume's content was broken off");
      stream.cut();
    }
  }

  /** As long as the file was when it was opened: one that grows is cut, and one that shrinks breaks the answer. */
  async function sendFile(reply: FastifyReply, content: Readable, sizeBytes: number): Promise<void> {
    const stream = new ResponseStream(reply);
    try {
      stream.begin({ "content-type": "application/octet-stream", "content-length": sizeBytes });
      await orCut(stream, async () => {
        let left = sizeBytes;
        for await (const chunk of until<Buffer>(content, [stream.closed])) {
          const piece = chunk.subarray(0, left);
          left -= piece.length;
          if (!(await stream.write(piece)) || left === 0) break;
        }
        return left === 0;
      });
    } finally {
      content.destroy();
    }
  }

  /** A JSON list, each entry written as it is found. */
  async function sendList(
    reply: FastifyReply,
    found: AsyncIterable<FileEntry>,
    shape: (entry: FileEntry) => unknown,
  ): Promise<void> {
    const stream = new ResponseStream(reply);
    const entries = until(found, [stream.closed]);
    // A directory that is not there is known with the first answer, when there is still time for a status.
    let next = await entries.next();
    stream.begin({ "content-type": "application/json; charset=utf-8" });
    await orCut(stream, async () => {
      let before = "[";
      for (; next.done !== true; next = await entries.next()) {
        if (!(await stream.write(`${before}${JSON.stringify(shape(next.value))}`))) {
          await entries.return(undefined);
          return false;
        }
        before = ",";
      }
      await stream.write(before === "[" ? "[]" : "]");
      return true;
    });
  }
}

/** Files inside a sandbox. Content streams both ways and is held nowhere. */
import type { Readable } from "node:stream";
import type { FileEntry } from "@holdfast/engine";
import type { WatchLine } from "@holdfast/protocol";
import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from "fastify";
import type { ServerParts } from "../parts.js";
import { logFault } from "./errors.js";
import { given } from "./given.js";
import { whileRunning, whyGone } from "./gone.js";
import { bodyOf, queryOf, sandboxId } from "./input.js";
import { beginLines, keepLinesAlive, sendLines, writeLine } from "./line-stream.js";
import { acceptRawBodies, bodyStream } from "./raw-body.js";
import type { OpenStreams, ResponseStream } from "./response-stream.js";
import { bodies, queries } from "./schemas.js";
import { until } from "./until.js";
import { fileInfo } from "./views.js";

/** How much a read will give, as far as it can be known: the kernel's own files say 0 and have content. */
function contentLength(entry: FileEntry, range: { readonly offset?: number; readonly length?: number }): number | null {
  if (entry.type !== "file" || entry.sizeBytes === 0) return null;
  const rest = Math.max(0, entry.sizeBytes - (range.offset ?? 0));
  return Math.min(rest, range.length ?? rest);
}

export function fileRoutes(parts: ServerParts, streams: OpenStreams): FastifyPluginAsync {
  const { sandboxes, log } = parts;

  async function open(request: FastifyRequest) {
    const { caller } = request;
    const live = await sandboxes.openFor(caller, sandboxId(request));
    return { sandboxes, caller, live, files: live.sandbox.files };
  }

  async function read(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { path, ...options } = queryOf(request, queries.readFile);
    const range = given(options);
    const at = await open(request);
    const stream = streams.prepare(reply, "cut");
    const reading = at.files.read(path, range);
    const { entry, content } = await whileRunning(reading, at).catch((error: unknown) => {
      reading.then(({ content }) => content.destroy()).catch(() => {});
      throw error;
    });
    try {
      await sendContent(stream, content, { length: contentLength(entry, range), gone: at.live.gone });
    } finally {
      content.destroy();
    }
  }

  /** After the first byte the only way to say that something is missing is to break off. */
  async function sendContent(
    stream: ResponseStream,
    content: Readable,
    { length, gone }: { readonly length: number | null; readonly gone: AbortSignal },
  ): Promise<void> {
    stream.begin({
      "content-type": "application/octet-stream",
      ...(length === null ? {} : { "content-length": length }),
    });
    let sent = 0;
    try {
      for await (const chunk of until<Buffer>(content, [stream.closed, gone])) {
        // A file that grows meanwhile is given as long as it was.
        const piece = length === null ? chunk : chunk.subarray(0, length - sent);
        sent += piece.length;
        if (!(await stream.write(piece)) || sent === length) break;
      }
      const complete = length === null ? !gone.aborted : sent === length;
      if (complete) stream.end();
      else stream.cut();
    } catch (reason) {
      logFault(log, reason, { stream: "file" });
      stream.cut();
    }
  }

  async function write(request: FastifyRequest) {
    const { path, ...options } = queryOf(request, queries.writeFile);
    const at = await open(request);
    const content = bodyStream(request);
    // It is destroyed when the write is given up; who waits for it is told by the write.
    content.on("error", () => {});
    try {
      return fileInfo(await whileRunning(at.files.write(path, content, options), at));
    } finally {
      content.destroy();
    }
  }

  async function list(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { path, ...options } = queryOf(request, queries.listFiles);
    const at = await open(request);
    const stream = streams.prepare(reply, "cut");
    const entries = until(at.files.list(path, given(options)), [stream.closed, at.live.gone]);
    // A directory that is not there is known with the first answer, when there is still time for a status.
    let next = await entries.next();
    beginLines(stream);
    await sendLines(stream, log, async () => {
      for (; next.done !== true; next = await entries.next()) {
        if (!(await writeLine(stream, fileInfo(next.value)))) {
          await entries.return(undefined);
          return;
        }
      }
      if (at.live.gone.aborted) throw await whyGone(sandboxes, at.caller, at.live.id);
    });
  }

  async function watch(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { path, ...options } = queryOf(request, queries.watchFiles);
    const at = await open(request);
    const stream = streams.prepare(reply, "end");
    const events = await whileRunning(at.files.watch(path, { ...given(options), signal: stream.closed }), at);
    beginLines(stream);
    await sendLines(stream, log, async () => {
      keepLinesAlive(stream);
      await writeLine(stream, { type: "ready" } satisfies WatchLine);
      for await (const { kind, name } of until(events, [stream.closed, at.live.gone])) {
        if (kind === "caught_up") continue; // an answer, and nobody here asks
        if (!(await writeLine(stream, { type: "event", kind, name } satisfies WatchLine))) return;
      }
      if (!stream.closed.aborted) throw await whyGone(sandboxes, at.caller, at.live.id);
    });
  }

  return async (app) => {
    app.get("/sandboxes/:id/files", { exposeHeadRoute: false }, read);
    app.get("/sandboxes/:id/files/list", { exposeHeadRoute: false }, list);
    app.get("/sandboxes/:id/files/watch", { exposeHeadRoute: false }, watch);

    app.get("/sandboxes/:id/files/info", async (request) => {
      const { path, ...options } = queryOf(request, queries.fileInfo);
      const at = await open(request);
      return fileInfo(await whileRunning(at.files.stat(path, given(options)), at));
    });

    app.delete("/sandboxes/:id/files", async (request) => {
      const { path, ...options } = queryOf(request, queries.removeFile);
      const at = await open(request);
      return { removed: await whileRunning(at.files.remove(path, given(options)), at) };
    });

    app.post("/sandboxes/:id/files/directory", async (request, reply) => {
      const { path, ...options } = bodyOf(request, bodies.makeDirectory);
      const at = await open(request);
      const { entry, created } = await whileRunning(at.files.makeDirectory(path, given(options)), at);
      return reply.status(created ? 201 : 200).send(fileInfo(entry));
    });

    app.post("/sandboxes/:id/files/move", async (request) => {
      const { from, to, ...options } = bodyOf(request, bodies.move);
      const at = await open(request);
      return fileInfo(await whileRunning(at.files.move(from, to, given(options)), at));
    });

    await app.register(async (raw) => {
      acceptRawBodies(raw);
      raw.put("/sandboxes/:id/files", write);
    });
  };
}

/** What every request has in common, whoever it is for: origins, expectations, and bodies that nobody reads. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { FastifyInstance } from "fastify";

const EXPOSED_HEADERS = [
  "X-Next-Token",
  "X-Total-Running",
  "Retry-After",
  "Location",
  "Content-Disposition",
  "Content-Encoding",
  "Content-Range",
  "Accept-Ranges",
  "Last-Modified",
].join(", ");

const PREFLIGHT_SECONDS = 7200;
/** A header value that is a list of header names, and nothing else. */
const HEADER_LIST = /^[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}$/;

/**
 * Any page may ask: what counts is the key or token it holds, and a browser never adds those by itself. Credentials in
 * the browser's sense (cookies) are not allowed along.
 */
export function allowAnyOrigin(response: ServerResponse): void {
  response.setHeader("Access-Control-Allow-Origin", "*");
  response.setHeader("Access-Control-Expose-Headers", EXPOSED_HEADERS);
}

/** A browser's question whether it may ask. True if it was one; then it is answered. */
export function answerPreflight(request: IncomingMessage, response: ServerResponse): boolean {
  const asked = request.headers["access-control-request-method"];
  if (request.method !== "OPTIONS" || asked === undefined) return false;
  const headers = request.headers["access-control-request-headers"];
  response.setHeader("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
  if (headers !== undefined && HEADER_LIST.test(headers)) response.setHeader("Access-Control-Allow-Headers", headers);
  response.setHeader("Access-Control-Max-Age", PREFLIGHT_SECONDS);
  response.setHeader("Vary", "Access-Control-Request-Headers");
  response.writeHead(204).end();
  return true;
}

/**
 * `GET http://name/path` means `GET /path` at that name. False if it contradicts the Host header: two opinions on whom a
 * request is for are one too many.
 */
export function toOriginForm(request: IncomingMessage): boolean {
  const url = request.url ?? "/";
  if (url.startsWith("/") || url === "*") return true;
  const [, authority, rest = ""] = /^https?:\/\/([^/?#]*)(.*)$/i.exec(url) ?? [];
  if (authority === undefined || authority.toLowerCase() !== request.headers.host?.toLowerCase()) return false;
  request.url = rest.startsWith("/") ? rest : `/${rest}`;
  return true;
}

export function hasBody(request: IncomingMessage): boolean {
  const { "content-length": length, "transfer-encoding": encoding } = request.headers;
  return encoding !== undefined || (length !== undefined && Number(length) > 0);
}

/** Tells a client that waits for it to send the body; from then on both sides know what is on the connection. */
export function sayContinue(response: ServerResponse): void {
  response.removeHeader("Connection");
  response.writeContinue();
}

/** More than the largest body that any route takes, so that whoever sends a little too much is told. */
const UNREAD_MAX_BYTES = 64 * 1024 * 1024;
const UNREAD_MAX_MS = 5000;
const UNREAD_LOOK_MS = 100;

/**
 * Node throws a body away by itself that nobody began to read. One that was read in part it takes for done with when the
 * answer is out: it stays on the connection, in the way of the next request, unless this method of Node's own is called.
 */
function throwAwayRest(request: IncomingMessage & { _dump?: () => void }, socket: Socket): void {
  request.removeAllListeners("readable");
  if (request._dump === undefined) request.resume();
  else request._dump();
  socket.resume();
}

/**
 * When a request is answered before its body was read (a refusal), the rest is taken in and thrown away: closing at once
 * would reset the connection, and the client might never see why. But not for ever and not without end.
 */
export function boundUnreadBody(request: IncomingMessage, response: ServerResponse): void {
  if (!hasBody(request)) return;
  // Now: a request that was destroyed has none any more.
  const { socket } = request;
  response.once("finish", () => {
    if (request.complete || socket.destroyed) return;
    const atStart = socket.bytesRead;
    const until = Date.now() + UNREAD_MAX_MS;
    const timer = setInterval(() => {
      const over = socket.bytesRead - atStart > UNREAD_MAX_BYTES || Date.now() > until;
      if (!request.complete && over) socket.destroy();
      if (request.complete || socket.destroyed) clearInterval(timer);
    }, UNREAD_LOOK_MS);
    timer.unref();
    throwAwayRest(request, socket);
  });
}

/**
 * Fastify closes the connection behind an answer to a body that is too large. What is still on its way would then reset it,
 * and the client might never see the answer; `boundUnreadBody` takes that in.
 */
export function stayForLargeBodies(app: FastifyInstance): void {
  app.addHook("onSend", (_request, reply, _payload, done) => {
    if (reply.statusCode === 413) reply.removeHeader("connection");
    done();
  });
}

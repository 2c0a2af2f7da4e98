/** One request and its answer, over a connection to a port inside. Both bodies stream, and the slower side sets the pace. */
import { type ClientRequest, type IncomingMessage, request as openRequest, type ServerResponse } from "node:http";
import type { Duplex, Readable, Writable } from "node:stream";
import { TLSSocket } from "node:tls";
import { hasBody, sayContinue } from "../http/plane.js";
import { requestHeadersFor, responseHeadersFor } from "./forwarded-headers.js";
import type { ProxyTarget } from "./upstream.js";

const CONTINUE_AFTER_MS = 1000;
/** Methods that Node sends without a length when they have no body. Others must say that it is 0. */
const BODILESS_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"]);
/** They frame or route a message: behind its body they could only mislead. */
const NO_TRAILERS: ReadonlySet<string> = new Set(["content-length", "transfer-encoding", "host", "trailer", "te"]);

/** Throws if the request cannot be written: a target with bytes that do not belong there. */
export function openOutgoing(
  request: IncomingMessage,
  socket: Duplex,
  { live, port }: ProxyTarget,
  upgrade?: string,
): ClientRequest {
  const mask = live.row.network.settings?.maskRequestHost;
  const method = request.method ?? "GET";
  const headers = requestHeadersFor({
    rawHeaders: request.rawHeaders,
    headers: request.headers,
    remoteAddress: request.socket.remoteAddress,
    encrypted: request.socket instanceof TLSSocket,
    port,
    maskHost: typeof mask === "string" ? mask : undefined,
    upgrade,
  });
  if (!hasBody(request) && request.headers["content-length"] === undefined && !BODILESS_METHODS.has(method)) {
    headers.push("Content-Length", "0");
  }
  return openRequest({ method, path: request.url ?? "/", headers, setHost: false, createConnection: () => socket });
}

function flow(from: Readable, to: Writable): void {
  from.on("data", (chunk: Buffer) => {
    if (!to.write(chunk)) from.pause();
  });
  to.on("drain", () => from.resume());
}

function trailersOf(message: IncomingMessage): [string, string][] {
  const pairs: [string, string][] = [];
  for (let index = 0; index + 1 < message.rawTrailers.length; index += 2) {
    const name = message.rawTrailers[index] ?? "";
    if (!NO_TRAILERS.has(name.toLowerCase())) pairs.push([name, message.rawTrailers[index + 1] ?? ""]);
  }
  return pairs;
}

function sendBody(request: IncomingMessage, outgoing: ClientRequest): void {
  if (!hasBody(request)) {
    outgoing.end();
    return;
  }
  outgoing.flushHeaders();
  flow(request, outgoing);
  request.once("end", () => {
    const trailers = trailersOf(request);
    if (trailers.length > 0) outgoing.addTrailers(trailers);
    outgoing.end();
  });
}

/** Passes the answer on. `broken` is called if it ends before its end. */
export function relayResponse(incoming: IncomingMessage, response: ServerResponse, broken: () => void): void {
  incoming.on("error", broken);
  const headers = responseHeadersFor(incoming);
  // Of two framings the chunks are the one that was read by. A length beside them may be a lie.
  const chunked = incoming.headers["transfer-encoding"] !== undefined;
  const kept = chunked
    ? headers.filter((_text, index) => headers[index - (index % 2)]?.toLowerCase() !== "content-length")
    : headers;
  try {
    response.writeHead(incoming.statusCode ?? 502, incoming.statusMessage, kept);
  } catch {
    // A status or a header that must not be written, from a server that may be anything.
    incoming.destroy();
    broken();
    return;
  }
  response.flushHeaders();
  flow(incoming, response);
  incoming.once("end", () => {
    const trailers = trailersOf(incoming);
    if (trailers.length > 0 && response.chunkedEncoding) response.addTrailers(trailers);
    response.end();
  });
}

function relayInformation(outgoing: ClientRequest, response: ServerResponse): void {
  outgoing.on("information", ({ statusCode, headers }) => {
    if (response.headersSent || response.destroyed) return;
    if (statusCode === 102) response.writeProcessing();
    if (statusCode === 103 && typeof headers.link === "string") {
      try {
        response.writeEarlyHints({ link: headers.link });
      } catch {
        // Hints that Node finds malformed are only hints.
      }
    }
  });
}

/** The client waits for a word before it sends its body. A server inside that does not know the custom never says it. */
function relayContinue(outgoing: ClientRequest, response: ServerResponse): void {
  const say = () => {
    clearTimeout(timer);
    if (!response.headersSent && !response.destroyed) sayContinue(response);
  };
  const timer = setTimeout(say, CONTINUE_AFTER_MS);
  outgoing.once("continue", say);
  outgoing.once("response", () => clearTimeout(timer));
  response.once("close", () => clearTimeout(timer));
}

/** `unanswered` is called if the server inside gave no answer at all. */
export function exchange(
  request: IncomingMessage,
  response: ServerResponse,
  outgoing: ClientRequest,
  options: { readonly awaitsContinue: boolean; readonly unanswered: () => void },
): void {
  const broken = () => {
    if (response.writableEnded || response.destroyed) return;
    if (response.headersSent) request.socket.destroy();
    else options.unanswered();
  };
  if (options.awaitsContinue) relayContinue(outgoing, response);
  relayInformation(outgoing, response);
  outgoing.on("response", (incoming) => relayResponse(incoming, response, broken));
  outgoing.on("upgrade", (_incoming, socket) => {
    // Nobody asked for another protocol.
    socket.destroy();
    broken();
  });
  outgoing.on("error", broken);
  response.once("close", () => {
    request.removeAllListeners("data");
    outgoing.destroy();
  });
  request.on("error", () => outgoing.destroy());
  sendBody(request, outgoing);
}

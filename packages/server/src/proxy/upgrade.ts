/** A connection that becomes one of another protocol (WebSocket): asked for like any request, and spliced after the 101. */
import { type ClientRequest, type IncomingMessage, ServerResponse, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { relayResponse } from "./exchange.js";
import { responseHeadersFor } from "./forwarded-headers.js";

const ANSWER_TIMEOUT_MS = 60_000;

/** For an answer on a socket that Node has let go of. The connection ends with it. */
export function responseOn(request: IncomingMessage, socket: Socket): ServerResponse {
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  socket.on("error", () => {});
  socket.on("drain", () => response.emit("drain"));
  response.once("finish", () => {
    response.detachSocket(socket);
    socket.destroySoon();
  });
  return response;
}

function headOf(incoming: IncomingMessage): string {
  const headers = responseHeadersFor(incoming, { keepUpgrade: true });
  const lines = [`HTTP/1.1 101 ${STATUS_CODES[101]}`];
  for (let index = 0; index + 1 < headers.length; index += 2) lines.push(`${headers[index]}: ${headers[index + 1]}`);
  return `${lines.join("\r\n")}\r\n\r\n`;
}

function splice(client: Socket, inside: Duplex): void {
  client.setTimeout(0);
  client.setNoDelay(true);
  client.pipe(inside);
  inside.pipe(client);
  client.on("error", () => inside.destroy());
  client.on("close", () => inside.destroy());
  inside.on("close", () => {
    // What came before the end is still to be sent; what broke off is to break off.
    if (inside.readableEnded) client.destroySoon();
    else client.destroy();
  });
}

export function exchangeUpgrade(
  socket: Socket,
  head: Buffer,
  response: ServerResponse,
  outgoing: ClientRequest,
  unanswered: () => void,
): void {
  const broken = () => {
    if (response.writableEnded || response.destroyed) return;
    if (response.headersSent) socket.destroy();
    else unanswered();
  };
  const timer = setTimeout(() => outgoing.destroy(), ANSWER_TIMEOUT_MS);
  outgoing.once("close", () => clearTimeout(timer));
  const onClientGone = () => outgoing.destroy();
  socket.once("close", onClientGone);
  outgoing.on("error", broken);
  outgoing.on("response", (incoming) => {
    clearTimeout(timer);
    relayResponse(incoming, response, broken);
  });
  outgoing.on("upgrade", (incoming, inside, insideHead) => {
    clearTimeout(timer);
    socket.off("close", onClientGone);
    if (socket.destroyed) {
      inside.destroy();
      return;
    }
    response.detachSocket(socket);
    socket.write(headOf(incoming), "latin1");
    if (insideHead.length > 0) socket.write(insideHead);
    if (head.length > 0) inside.write(head);
    splice(socket, inside);
  });
  outgoing.end();
}

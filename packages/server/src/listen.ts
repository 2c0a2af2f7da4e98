/** The sockets: one for the network, one for the operator. */
import { once } from "node:events";
import { rmSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { HoldfastError } from "@holdfast/protocol";
import { OPERATOR } from "./http/authenticate.js";

/** Clients keep connections in a pool for minutes; ours must be the longer breath, or a request meets a closing socket. */
const KEEP_ALIVE_MS = 620_000;
/** Nobody needs longer to say what he wants. Bodies may take their time: they are bounded where they are read. */
const HEADERS_TIMEOUT_MS = 60_000;
/** A connection on which nothing moves in either direction, not even a keepalive, is dead or means harm. */
const SILENCE_MS = 660_000;

export interface Handlers {
  onRequest(request: IncomingMessage, response: ServerResponse): void;
  /** The client waits to be told to send the body. */
  onCheckContinue(request: IncomingMessage, response: ServerResponse): void;
  onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
}

function prepare(server: Server, handlers: Handlers): Server {
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  server.headersTimeout = HEADERS_TIMEOUT_MS;
  server.requestTimeout = 0;
  server.timeout = SILENCE_MS;
  server.on("request", (request, response) => handlers.onRequest(request, response));
  server.on("checkContinue", (request, response) => handlers.onCheckContinue(request, response));
  server.on("upgrade", (request, socket, head) => handlers.onUpgrade(request, socket, head));
  server.on("clientError", onClientError);
  return server;
}

function onClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  const [status, message] =
    error.code === "HPE_HEADER_OVERFLOW"
      ? ["431 Request Header Fields Too Large", "the request's headers are too large"]
      : error.code === "ERR_HTTP_REQUEST_TIMEOUT"
        ? ["408 Request Timeout", "the request's headers did not arrive in time"]
        : ["400 Bad Request", "this is not an HTTP/1.1 request"];
  const body = JSON.stringify({ code: Number.parseInt(status, 10), message });
  socket.end(
    `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}

export async function listenOnNetwork(
  options: {
    readonly host: string;
    readonly port: number;
    readonly tls: { readonly certificate: string; readonly key: string } | undefined;
  },
  handlers: Handlers,
): Promise<{ server: Server; port: number }> {
  const { tls } = options;
  const server = prepare(
    tls === undefined
      ? createServer()
      : // HTTP/1.1 only: a stream that breaks there is understood by every client as what it is.
        createTlsServer({ cert: tls.certificate, key: tls.key, ALPNProtocols: ["http/1.1"], minVersion: "TLSv1.2" }),
    handlers,
  );
  server.listen({ host: options.host, port: options.port });
  try {
    await once(server, "listening");
  } catch (error) {
    throw listenError(error, options);
  }
  return { server, port: (server.address() as AddressInfo).port };
}

function listenError(error: unknown, { host, port }: { host: string; port: number }): HoldfastError {
  const { code } = error as NodeJS.ErrnoException;
  const hints: Readonly<Record<string, string>> = {
    EADDRINUSE: "Something listens there already. Choose another one with --port, or stop the other.",
    EACCES: "Ports below 1024 need root.",
    EADDRNOTAVAIL: "This machine has no such address. Choose one with --host.",
    ENOTFOUND: "That name is not known. Choose an address with --host.",
  };
  return new HoldfastError("invalid_argument", `cannot listen on ${host}:${port} (${code ?? String(error)})`, {
    hint: hints[code ?? ""],
    details: { field: code === "EADDRINUSE" ? "port" : "host" },
    cause: error,
  });
}

/**
 * The operator's socket lies in a directory that only root can enter, so whoever speaks over it is the operator. It is
 * also the lock on the state directory: there is one server that listens on it.
 */
export async function listenForOperator(path: string, handlers: Handlers): Promise<Server> {
  const server = prepare(createServer(), handlers);
  server.on("connection", (socket: Socket) => {
    Object.assign(socket, { [OPERATOR]: true });
  });
  for (let attempt = 0; ; attempt += 1) {
    server.listen(path);
    try {
      await once(server, "listening");
      return server;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE" || attempt > 0) throw HoldfastError.from(error);
    }
    if (await isAnswered(path)) {
      throw new HoldfastError("invalid_argument", `another server uses this state directory: it answers at ${path}`, {
        hint: "Stop it, or choose another directory with --state-dir.",
        details: { field: "stateDirectory", socketPath: path },
      });
    }
    // Left by a server that was killed.
    rmSync(path, { force: true });
  }
}

function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

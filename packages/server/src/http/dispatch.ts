/**
 * The first to see a request: decides by its address whether it is for the API, for envd of a sandbox or for another port
 * inside, and sees to it that a request to a sandbox does not outlive it.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { errorSpecs, HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { FastifyInstance } from "fastify";
import { requireRightToWake } from "../envd/http/access.js";
import type { ServerParts } from "../parts.js";
import { Flights } from "../proxy/flights.js";
import type { PortProxy } from "../proxy/port-proxy.js";
import { type Refusal, refuse, SANDBOX_NOT_FOUND } from "../proxy/refusal.js";
import { responseOn } from "../proxy/upgrade.js";
import { refusalOfTraffic } from "../proxy/upstream.js";
import type { LiveSandbox, Opened } from "../sandboxes/types.js";
import type { SandboxRow } from "../store/store.js";
import { type Address, addressOf, INVALID_HOST } from "./address.js";
import { setLiveSandbox } from "./live-request.js";
import { allowAnyOrigin, answerPreflight, boundUnreadBody, sayContinue, toOriginForm } from "./plane.js";

export const ENVD_PORT = 49_983;

/** What SDKs call, whose errors show the message and nothing else of a body. */
const ENVD_API = /^\/(?:process\.Process\/|filesystem\.Filesystem\/|files(?:[/?]|$))/;

const HEALTH = /^\/health(?:\?|$)/;

/** A client whose stream was cut by a pause asks this at once. Were it to wake the sandbox, no pause would last. */
function isHealthCheck(request: IncomingMessage, to: { readonly port: number }): boolean {
  return to.port === ENVD_PORT && request.method === "GET" && HEALTH.test(request.url ?? "");
}

export interface DispatcherParts {
  readonly parts: Pick<ServerParts, "config" | "sandboxes" | "log">;
  readonly control: FastifyInstance;
  readonly envd: FastifyInstance;
  readonly proxy: PortProxy;
}

export interface Dispatcher {
  onRequest(request: IncomingMessage, response: ServerResponse): void;
  /** A request whose client waits to be told to send the body. */
  onCheckContinue(request: IncomingMessage, response: ServerResponse): void;
  onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Requests to sandboxes, upgraded connections included, that are under way. */
  readonly activeSandboxRequests: number;
}

interface SandboxAddress {
  readonly id: SandboxId;
  readonly port: number;
}

function refusalOf(
  opened: Exclude<Opened, { kind: "running" }>,
  request: IncomingMessage,
  to: SandboxAddress,
): Refusal {
  const sandboxId = to.id;
  switch (opened.kind) {
    case "paused":
      return { status: 502, sandboxId, message: SANDBOX_NOT_FOUND };
    case "busy":
      return { status: 409, sandboxId, message: "The sandbox is changing its state", retryAfterSeconds: 1 };
    case "missing": {
      const { ending } = opened;
      if (ending === undefined) return { status: 502, sandboxId, message: SANDBOX_NOT_FOUND };
      const isApi = to.port === ENVD_PORT && ENVD_API.test(request.url ?? "");
      const message = isApi ? `${SANDBOX_NOT_FOUND}. ${ending.message}` : SANDBOX_NOT_FOUND;
      return { status: 502, sandboxId, message, ending };
    }
  }
}

function refusalOfError(error: unknown, sandboxId: SandboxId): Refusal {
  const { code, message, details } = HoldfastError.from(error);
  const { http: status, retry } = errorSpecs[code];
  if (code === "host_pressure" || code === "pid_pressure") {
    return { status, sandboxId, message, retryAfterSeconds: Number(details.retryAfterSeconds ?? 1) };
  }
  if (status >= 500) return { status, sandboxId, message: "The sandbox could not be reached" };
  return { status, sandboxId, message, ...(retry ? { retryAfterSeconds: 1 } : {}) };
}

export function createDispatcher({ parts, control, envd, proxy }: DispatcherParts): Dispatcher {
  const flights = new Flights();
  const { domain } = parts.config;

  function addressOfRequest(request: IncomingMessage): Address {
    return toOriginForm(request) ? addressOf(request, { domain }) : INVALID_HOST;
  }

  /** A request that would be refused must not wake a sandbox: that costs its owner memory and time. */
  function requireRight(request: IncomingMessage, to: SandboxAddress, row: SandboxRow): void {
    if (to.port === ENVD_PORT) requireRightToWake(request, parts.sandboxes.envdToken(to.id));
    else {
      const refusal = refusalOfTraffic(request, row, parts.sandboxes);
      if (refusal !== undefined) throw new HoldfastError("access_denied", refusal.message);
    }
  }

  /** Of one that would have to be woken, and may be: it is paused, or stands still because the host is short of memory. */
  function sleepingRow(opened: Opened): SandboxRow | undefined {
    if (opened.kind === "paused") return opened.wakeable ? opened.row : undefined;
    if (opened.kind !== "running" || parts.sandboxes.pressureOf(opened.live.id)?.frozen !== true) return undefined;
    return opened.live.row;
  }

  /** Undefined if it is answered already. */
  async function open(
    request: IncomingMessage,
    response: ServerResponse,
    to: SandboxAddress,
  ): Promise<LiveSandbox | undefined> {
    let refusal: Refusal;
    try {
      let opened = await parts.sandboxes.open(to.id, { wake: false });
      const sleeper = sleepingRow(opened);
      if (sleeper !== undefined) {
        if (isHealthCheck(request, to)) {
          response.writeHead(204).end();
          return undefined;
        }
        requireRight(request, to, sleeper);
        opened = await parts.sandboxes.open(to.id, { wake: true });
      }
      if (opened.kind === "running") return response.destroyed ? undefined : opened.live;
      refusal = refusalOf(opened, request, to);
    } catch (error) {
      refusal = refusalOfError(error, to.id);
      if (refusal.status >= 500 && refusal.status !== 503)
        parts.log.error({ err: error, sandbox: to.id }, "a sandbox could not be opened");
    }
    if (!response.destroyed) refuse(request, response, refusal);
    return undefined;
  }

  async function serveSandbox(
    request: IncomingMessage,
    response: ServerResponse,
    to: SandboxAddress,
    awaitsContinue: boolean,
  ): Promise<void> {
    const isEnvd = to.port === ENVD_PORT;
    if (isEnvd) {
      allowAnyOrigin(response);
      if (answerPreflight(request, response)) return;
    }
    const live = await open(request, response, to);
    if (live === undefined) return;
    response.once("close", flights.add(live, { destroy: () => request.socket.destroy() }));
    if (!isEnvd) {
      await proxy.onRequest(request, response, { live, port: to.port }, { awaitsContinue });
      return;
    }
    setLiveSandbox(request, live);
    if (awaitsContinue) sayContinue(response);
    envd.routing(request, response);
  }

  function dispatch(request: IncomingMessage, response: ServerResponse, awaitsContinue: boolean): void {
    boundUnreadBody(request, response);
    // A client that was not told to go on may send its body or not: the connection cannot be used again.
    if (awaitsContinue) response.setHeader("Connection", "close");
    const address = addressOfRequest(request);
    switch (address.plane) {
      case "refused":
        refuse(request, response, { status: address.status, message: address.message });
        return;
      case "control":
        allowAnyOrigin(response);
        if (answerPreflight(request, response)) return;
        if (awaitsContinue) sayContinue(response);
        control.routing(request, response);
        return;
      case "sandbox":
        serveSandbox(request, response, address, awaitsContinue).catch((error: unknown) => {
          parts.log.error({ err: error, sandbox: address.id }, "a request to a sandbox failed");
          request.socket.destroy();
        });
    }
  }

  async function upgrade(request: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    const response = responseOn(request, socket);
    const address = addressOfRequest(request);
    if (address.plane !== "sandbox" || address.port === ENVD_PORT) {
      const message = address.plane === "refused" ? address.message : "Nothing to upgrade to here";
      refuse(request, response, { status: 400, message });
      return;
    }
    const live = await open(request, response, address);
    if (live === undefined) return;
    socket.once("close", flights.add(live, socket));
    await proxy.onUpgrade(request, response, { socket, head }, { live, port: address.port });
  }

  const dispatcher: Dispatcher = {
    onRequest: (request, response) => dispatch(request, response, false),
    onCheckContinue: (request, response) => dispatch(request, response, true),
    onUpgrade(request, socket, head) {
      // Node types it as any stream; from an HTTP server it is a socket.
      const connection = socket as Socket;
      upgrade(request, connection, head).catch((error: unknown) => {
        parts.log.error({ err: error }, "an upgrade failed");
        connection.destroy();
      });
    },
    get activeSandboxRequests() {
      return flights.count;
    },
  };
  return dispatcher;
}

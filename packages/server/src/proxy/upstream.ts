/** The way to a port inside: who may go it, how many at once, and the connection itself. */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { HoldfastError } from "@holdfast/protocol";
import { isSameSecret } from "../http/same-secret.js";
import type { ServerParts } from "../parts.js";
import type { LiveSandbox, Sandboxes } from "../sandboxes/types.js";
import type { SandboxRow } from "../store/store.js";
import { PORT_NOT_OPEN, type Refusal, SANDBOX_NOT_FOUND } from "./refusal.js";
import { secureUpstream } from "./secure-upstream.js";

/** For one sandbox. What is above would be somebody who opens and never reads. */
const MAX_CONNECTIONS = 1000;
const DIAL_TIMEOUT_MS = 30_000;
const TOKEN_HEADER = "e2b-traffic-access-token";

export interface ProxyTarget {
  readonly live: LiveSandbox;
  readonly port: number;
}

export type Dialled = { readonly socket: Duplex } | { readonly refusal: Refusal };

/** Why a dial failed, as the client may know it. */
function refusalOfDial(error: unknown, { live, port }: ProxyTarget): Refusal {
  const { code } = HoldfastError.from(error);
  const sandboxId = live.id;
  switch (code) {
    case "connection_refused":
      return { status: 502, sandboxId, message: PORT_NOT_OPEN, port };
    case "sandbox_ended":
    case "sandbox_not_found":
      return { status: 502, sandboxId, message: SANDBOX_NOT_FOUND };
    case "sandbox_frozen":
    case "sandbox_paused":
    case "sandbox_busy":
      return { status: 409, sandboxId, message: "The sandbox is changing its state", retryAfterSeconds: 1 };
    case "host_capacity":
      return { status: 429, sandboxId, message: "The sandbox has too many connections", port, retryAfterSeconds: 1 };
    default:
      return { status: 502, sandboxId, message: "The port could not be reached", port };
  }
}

/** A server that does not accept leaves a dial open; it is given up, and closed should it come through later. */
async function dialInTime({ live, port }: ProxyTarget): Promise<Duplex> {
  const dialling = live.sandbox.dial({ port });
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, DIAL_TIMEOUT_MS, undefined);
  });
  try {
    const socket = await Promise.race([dialling, late]);
    if (socket !== undefined) return socket;
  } finally {
    clearTimeout(timer);
  }
  dialling.then(
    (socket) => socket.destroy(),
    () => {}, // It was given up already, and its caller told.
  );
  throw new HoldfastError("engine_fault", `port ${port} did not accept a connection within ${DIAL_TIMEOUT_MS} ms`);
}

/** One of the ports that were named as those of HTTPS servers when the sandbox was made. */
function isHttpsPort({ live, port }: ProxyTarget): boolean {
  const ports = live.row.network.settings?.httpsPorts;
  return Array.isArray(ports) && ports.includes(port);
}

async function secure(socket: Duplex, { live, port }: ProxyTarget): Promise<Dialled> {
  try {
    const secured = await secureUpstream(socket);
    secured.on("error", () => {});
    return { socket: secured };
  } catch {
    const message =
      "The sandbox is running but the server on the port does not speak TLS, as its httpsPorts say it does";
    return { refusal: { status: 502, sandboxId: live.id, message, port } };
  }
}

export class Upstream {
  readonly #sandboxes: ServerParts["sandboxes"];
  readonly #connections = new WeakMap<LiveSandbox, number>();

  constructor(sandboxes: ServerParts["sandboxes"]) {
    this.#sandboxes = sandboxes;
  }

  async dial(request: IncomingMessage, target: ProxyTarget): Promise<Dialled> {
    const { live } = target;
    const refusal = this.#refusalOf(request, target);
    if (refusal !== undefined) return { refusal };
    this.#count(live, 1);
    let socket: Duplex;
    try {
      socket = await dialInTime(target);
    } catch (error) {
      this.#count(live, -1);
      return { refusal: refusalOfDial(error, target) };
    }
    socket.once("close", () => this.#count(live, -1));
    // It may break long after whoever used it has stopped listening.
    socket.on("error", () => {});
    return isHttpsPort(target) ? secure(socket, target) : { socket };
  }

  #count(live: LiveSandbox, change: number): void {
    this.#connections.set(live, (this.#connections.get(live) ?? 0) + change);
  }

  #refusalOf(request: IncomingMessage, { live, port }: ProxyTarget): Refusal | undefined {
    const sandboxId = live.id;
    const refusal = refusalOfTraffic(request, live.row, this.#sandboxes);
    if (refusal !== undefined) return refusal;
    if ((this.#connections.get(live) ?? 0) < MAX_CONNECTIONS) return undefined;
    const message = `The sandbox has ${MAX_CONNECTIONS} connections through the proxy already`;
    return { status: 429, sandboxId, message, port, retryAfterSeconds: 1 };
  }
}

/** Who may reach the ports of a sandbox that is not open to everybody: whoever has its traffic token. */
export function refusalOfTraffic(
  request: IncomingMessage,
  row: SandboxRow,
  sandboxes: Pick<Sandboxes, "trafficToken">,
): Refusal | undefined {
  if (row.network.allowPublicTraffic) return undefined;
  const token = request.headers[TOKEN_HEADER];
  const secured = "Sandbox is secured with traffic access token.";
  if (token === undefined) {
    return { status: 403, sandboxId: row.id, message: `${secured} Token header '${TOKEN_HEADER}' is missing` };
  }
  if (isSameSecret(String(token), sandboxes.trafficToken(row.id))) return undefined;
  return { status: 403, sandboxId: row.id, message: `${secured} Provided token is invalid` };
}

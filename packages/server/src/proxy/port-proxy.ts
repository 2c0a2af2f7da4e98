/** From outside to any port of a sandbox, also to one that is bound to 127.0.0.1 inside. */
import type { ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { ServerParts } from "../parts.js";
import { exchange, openOutgoing } from "./exchange.js";
import { type Refusal, refuse } from "./refusal.js";
import { exchangeUpgrade } from "./upgrade.js";
import { type ProxyTarget, Upstream } from "./upstream.js";

export interface PortProxy {
  /** `awaitsContinue`: the client has not been told to send its body yet. */
  onRequest(
    request: IncomingMessage,
    response: ServerResponse,
    target: ProxyTarget,
    options: { readonly awaitsContinue: boolean },
  ): Promise<void>;
  /** The response is for as long as the connection is still HTTP. */
  onUpgrade(
    request: IncomingMessage,
    response: ServerResponse,
    connection: { readonly socket: Socket; readonly head: Buffer },
    target: ProxyTarget,
  ): Promise<void>;
}

function badRequest({ live, port }: ProxyTarget, message: string): Refusal {
  return { status: 400, sandboxId: live.id, message, port };
}

function noAnswer({ live, port }: ProxyTarget): Refusal {
  const message = "The sandbox is running but the server on the port closed the connection without an answer";
  return { status: 502, sandboxId: live.id, message, port };
}

/** Only what both ends are sure to read the same way goes through. */
function refusalOfFraming(request: IncomingMessage, target: ProxyTarget): Refusal | undefined {
  const encoding = request.headers["transfer-encoding"];
  if (encoding === undefined || encoding.toLowerCase() === "chunked") return undefined;
  return { ...badRequest(target, "Unsupported Transfer-Encoding"), status: 501 };
}

export function createPortProxy(parts: Pick<ServerParts, "sandboxes">): PortProxy {
  const upstream = new Upstream(parts.sandboxes);

  function tryOpen(request: IncomingMessage, socket: Duplex, target: ProxyTarget, upgrade?: string) {
    try {
      return openOutgoing(request, socket, target, upgrade);
    } catch {
      // Node found bytes in the request that it would not write. Its reason names them; the client knows them.
      socket.destroy();
      return undefined;
    }
  }

  async function reach(
    request: IncomingMessage,
    response: ServerResponse,
    target: ProxyTarget,
    upgrade?: string,
  ): Promise<ClientRequest | undefined> {
    const dialled = await upstream.dial(request, target);
    if ("refusal" in dialled) {
      if (!response.destroyed) refuse(request, response, dialled.refusal);
      return undefined;
    }
    if (response.destroyed || request.socket.destroyed) {
      dialled.socket.destroy();
      return undefined;
    }
    const outgoing = tryOpen(request, dialled.socket, target, upgrade);
    if (outgoing === undefined) refuse(request, response, badRequest(target, "Invalid request"));
    return outgoing;
  }

  return {
    async onRequest(request, response, target, { awaitsContinue }) {
      const refusal = refusalOfFraming(request, target);
      if (refusal !== undefined) {
        refuse(request, response, refusal);
        return;
      }
      const outgoing = await reach(request, response, target);
      if (outgoing === undefined) return;
      exchange(request, response, outgoing, {
        awaitsContinue,
        unanswered: () => refuse(request, response, noAnswer(target)),
      });
    },

    async onUpgrade(request, response, { socket, head }, target) {
      const { upgrade, "content-length": length, "transfer-encoding": encoding } = request.headers;
      if (upgrade === undefined || encoding !== undefined || (length !== undefined && length !== "0")) {
        refuse(request, response, badRequest(target, "An upgrade cannot have a body"));
        return;
      }
      const outgoing = await reach(request, response, target, upgrade);
      if (outgoing === undefined) return;
      exchangeUpgrade(socket, head, response, outgoing, () => refuse(request, response, noAnswer(target)));
    },
  };
}

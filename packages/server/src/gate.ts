/** The door of the server: counts the requests under way, and can be shut. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { Handlers } from "./listen.js";

const DRAIN_LOOK_MS = 20;
/** Answers that go on until somebody ends them. A stop does not wait for those. */
const ENDLESS = /connect\+json|x-ndjson|event-stream/;

export class Gate {
  readonly #handlers: () => Handlers | undefined;
  readonly #isStillAnswered: (request: IncomingMessage) => boolean;
  readonly #active = new Set<ServerResponse>();
  /** Connections that are no longer HTTP. The server that accepted them does not know them any more. */
  readonly #upgraded = new Set<Duplex>();
  #closed = false;

  constructor(
    handlers: () => Handlers | undefined,
    /** What is still answered while others are turned away; a stop does not wait for it. */
    isStillAnswered: (request: IncomingMessage) => boolean = () => false,
  ) {
    this.#handlers = handlers;
    this.#isStillAnswered = isStillAnswered;
  }

  readonly handlers: Handlers = {
    onRequest: (request, response) => this.#enter(request, response)?.onRequest(request, response),
    onCheckContinue: (request, response) => this.#enter(request, response)?.onCheckContinue(request, response),
    onUpgrade: (request, socket, head) => {
      const handlers = this.#closed ? undefined : this.#handlers();
      if (handlers === undefined) {
        socket.destroy();
        return;
      }
      this.#upgraded.add(socket);
      socket.once("close", () => this.#upgraded.delete(socket));
      handlers.onUpgrade(request, socket, head);
    },
  };

  async drain(drainMs: number): Promise<void> {
    this.#closed = true;
    const deadline = Date.now() + drainMs;
    while (Date.now() < deadline && [...this.#active].some((response) => !isEndless(response))) {
      await sleep(DRAIN_LOOK_MS);
    }
    for (const socket of this.#upgraded) socket.destroy();
  }

  /** Undefined if it was turned away. */
  #enter(request: IncomingMessage, response: ServerResponse): Handlers | undefined {
    if (this.#closed && this.#isStillAnswered(request)) return this.#handlers();
    const handlers = this.#closed ? undefined : this.#handlers();
    if (handlers === undefined) {
      const message = this.#closed ? "the server is stopping; sandboxes run on" : "the server is starting";
      response.writeHead(503, { "content-type": "application/json", "retry-after": "1", connection: "close" });
      response.end(JSON.stringify({ code: 503, message }));
      return undefined;
    }
    this.#active.add(response);
    response.once("close", () => this.#active.delete(response));
    return handlers;
  }
}

function isEndless(response: ServerResponse): boolean {
  return response.headersSent && ENDLESS.test(String(response.getHeader("content-type") ?? ""));
}

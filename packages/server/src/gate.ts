/** The door of the server: counts the requests under way, and can be shut. */
import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { Handlers } from "./listen.js";

const DRAIN_LOOK_MS = 20;
/** Answers that go on until somebody ends them. A stop does not wait for those. */
const ENDLESS = /connect\+json|x-ndjson|event-stream/;

export class Gate {
  readonly #handlers: () => Handlers | undefined;
  readonly #active = new Set<ServerResponse>();
  #closed = false;

  constructor(handlers: () => Handlers | undefined) {
    this.#handlers = handlers;
  }

  readonly handlers: Handlers = {
    onRequest: (request, response) => this.#enter(response)?.onRequest(request, response),
    onCheckContinue: (request, response) => this.#enter(response)?.onCheckContinue(request, response),
    onUpgrade: (request, socket, head) => {
      const handlers = this.#closed ? undefined : this.#handlers();
      if (handlers === undefined) socket.destroy();
      else handlers.onUpgrade(request, socket, head);
    },
  };

  async drain(drainMs: number): Promise<void> {
    this.#closed = true;
    const deadline = Date.now() + drainMs;
    while (Date.now() < deadline && [...this.#active].some((response) => !isEndless(response))) {
      await sleep(DRAIN_LOOK_MS);
    }
  }

  /** Undefined if it was turned away. */
  #enter(response: ServerResponse): Handlers | undefined {
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

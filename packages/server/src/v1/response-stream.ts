/**
 * Answers that go on: lines, events, file content. A piece is taken from its source only when the connection has room for
 * it, so that a slow client costs one piece of memory and slows nobody but its own source.
 */
import type { ServerResponse } from "node:http";
import { HoldfastError } from "@holdfast/protocol";
import type { FastifyReply } from "fastify";

/** How long a client may take for what is on its way to it when we have said the last word. */
const LAST_WORDS_MS = 60_000;
/** The same, when the server stops. */
const LAST_WORDS_WHEN_STOPPING_MS = 1000;

export class ResponseStream {
  readonly #response: ServerResponse;
  readonly #reply: FastifyReply;
  readonly #closed = new AbortController();
  #begun = false;
  #keepAlive: NodeJS.Timeout | undefined;
  #waiting: (() => void) | undefined;

  constructor(reply: FastifyReply) {
    this.#reply = reply;
    this.#response = reply.raw;
    this.#response.once("close", () => this.#close());
    if (this.#response.destroyed) this.#close();
  }

  /** Aborted when the client has gone or we are done: nothing that is written from then on arrives. */
  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** True once its head has gone out: from then on nothing can be said by a status. */
  get hasBegun(): boolean {
    return this.#begun;
  }

  begin(headers: Readonly<Record<string, string | number>>): void {
    if (this.closed.aborted) throw new HoldfastError("server_stopping", "the server is being stopped");
    this.#begun = true;
    this.#reply.hijack();
    const all = { ...this.#reply.getHeaders(), "cache-control": "no-store", "x-accel-buffering": "no", ...headers };
    for (const [name, value] of Object.entries(all)) if (value !== undefined) this.#response.setHeader(name, value);
    this.#response.writeHead(200);
    this.#response.flushHeaders();
  }

  /** Says something every so often, unless the client is behind anyway. */
  keepAlive(piece: string, everyMs: number): void {
    this.#keepAlive = setInterval(() => {
      if (!this.closed.aborted && !this.#response.writableNeedDrain) this.#response.write(piece);
    }, everyMs).unref();
  }

  /** Resolves when there is room for more. False: the client has gone. */
  async write(piece: string | Uint8Array): Promise<boolean> {
    if (this.closed.aborted) return false;
    this.#keepAlive?.refresh();
    if (!this.#response.write(piece)) await this.#room();
    return !this.closed.aborted;
  }

  /** All has been said. */
  end(patienceMs = LAST_WORDS_MS): void {
    if (this.closed.aborted) return;
    if (this.#begun) {
      const giveUp = setTimeout(() => this.#response.destroy(), patienceMs).unref();
      this.#response.end(() => clearTimeout(giveUp));
    }
    this.#close();
  }

  /** Breaks off, so that the client sees that something is missing. */
  cut(): void {
    if (this.#begun) this.#response.destroy();
    this.#close();
  }

  #close(): void {
    clearInterval(this.#keepAlive);
    this.#closed.abort();
    this.#waiting?.();
  }

  async #room(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#waiting = resolve;
      this.#response.once("drain", resolve);
    });
    this.#waiting = undefined;
  }
}

/** The answers that are going on, so that a server that stops can end them: their clients come back with their offsets. */
export class OpenStreams {
  readonly #open = new Set<{ readonly stream: ResponseStream; readonly whenStopping: "end" | "cut" }>();

  /** `end` for a stream whose last piece says that it is the last; `cut` for one that would look complete. */
  prepare(reply: FastifyReply, whenStopping: "end" | "cut"): ResponseStream {
    const entry = { stream: new ResponseStream(reply), whenStopping };
    this.#open.add(entry);
    entry.stream.closed.addEventListener("abort", () => this.#open.delete(entry), { once: true });
    if (entry.stream.closed.aborted) this.#open.delete(entry);
    return entry.stream;
  }

  closeAll(): void {
    for (const { stream, whenStopping } of [...this.#open]) {
      if (whenStopping === "end") stream.end(LAST_WORDS_WHEN_STOPPING_MS);
      else stream.cut();
    }
  }
}

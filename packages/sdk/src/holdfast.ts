/** The client: one server, one key. */
import type { HostInfo, SandboxEvent, SandboxInfo, SandboxList } from "@holdfast/protocol";
import type { Waiting } from "./command.js";
import { type EventsOptions, events } from "./events.js";
import { Images } from "./images.js";
import { type ListOptions, listSandboxes, type PageOptions, pageOfSandboxes } from "./list.js";
import { type CreateOptions, connectSandbox, createSandbox, type Sandbox } from "./sandbox.js";
import { type ConnectionOptions, Transport } from "./transport.js";

export class Sandboxes {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** A new sandbox. If the connection fails on the way, the same one is asked for again: there are never two. */
  create(options: CreateOptions = {}): Promise<Sandbox> {
    return createSandbox(this.#transport, options);
  }

  /** One that exists. It is not resumed by it if it is paused; one that has ended is found too, for a day. */
  connect(id: string, options: Waiting = {}): Promise<Sandbox> {
    return connectSandbox(this.#transport, id, options);
  }

  /** All of them, newest first, page by page as you read on. */
  list(options: ListOptions = {}): AsyncGenerator<SandboxInfo> {
    return listSandboxes(this.#transport, options);
  }

  /** One page of them. */
  page(options: PageOptions = {}): Promise<SandboxList> {
    return pageOfSandboxes(this.#transport, options);
  }
}

export class Holdfast {
  readonly sandboxes: Sandboxes;
  readonly images: Images;
  readonly #transport: Transport;

  /** Without options: the server and the key of `HOLDFAST_URL` and `HOLDFAST_API_KEY`. */
  constructor(options: ConnectionOptions = {}) {
    this.#transport = new Transport(options);
    this.sandboxes = new Sandboxes(this.#transport);
    this.images = new Images(this.#transport);
  }

  /** The address of the server. */
  get url(): string {
    return this.#transport.url;
  }

  /** The host's budget: what there is, what is promised, what is used. */
  async host(options: Waiting = {}): Promise<HostInfo> {
    return this.#transport.json("GET", "/host", { signal: options.signal });
  }

  /** What happens to all sandboxes of the key. Comes back by itself when the connection breaks. */
  events(options: EventsOptions = {}): AsyncGenerator<SandboxEvent> {
    return events(this.#transport, "/events", options);
  }
}

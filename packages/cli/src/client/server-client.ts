/** The server that a command speaks to, found by flags, variables or the socket in the state directory. */
import {
  type CreateSandboxBody,
  HoldfastError,
  type HostInfo,
  type SandboxEvent,
  type SandboxInfo,
} from "@holdfast/protocol";
import { type EventsOptions, Holdfast, type Images, type Sandbox } from "@holdfast/sdk";
import { Agent, fetch as undiciFetch } from "undici";
import { checkIdText, chooseByPrefix, isFullId } from "./find-sandbox.js";
import { checkSocket, findServer, noServerAt, type ServerAddress, type ServerFlags } from "./find-server.js";

/** Reasons why nobody answers, as the system names them. */
const NOBODY_THERE = ["ECONNREFUSED", "ENOENT", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "ETIMEDOUT"];

/** Streams may be silent for as long as they like, and the socket of this machine is reached by its path. */
function createFetch(address: ServerAddress): typeof globalThis.fetch {
  const dispatcher = new Agent({
    headersTimeout: 0,
    bodyTimeout: 0,
    ...(address.kind === "socket" ? { connect: { socketPath: address.path } } : {}),
  });
  const where = address.kind === "socket" ? address.path : address.url;
  const send = async (input: string, init: object): Promise<unknown> => {
    try {
      return await undiciFetch(input, { ...init, dispatcher });
    } catch (reason) {
      const { cause } = reason as { cause?: NodeJS.ErrnoException };
      throw NOBODY_THERE.includes(cause?.code ?? "") ? noServerAt(where, cause) : reason;
    }
  };
  // undici's own types of what is the same at run time.
  return send as unknown as typeof globalThis.fetch;
}

export class ServerClient {
  readonly #holdfast: Holdfast;

  private constructor(options: { readonly url: string; readonly apiKey?: string; readonly fetch: typeof fetch }) {
    this.#holdfast = new Holdfast(options);
  }

  static async open(flags: ServerFlags): Promise<ServerClient> {
    const address = findServer(flags, process.env);
    if (address.kind === "socket") checkSocket(address.path);
    const fetch = createFetch(address);
    return new ServerClient(
      address.kind === "socket"
        ? { url: "http://localhost", fetch }
        : { url: address.url, apiKey: address.apiKey, fetch },
    );
  }

  create(body: CreateSandboxBody): Promise<Sandbox> {
    return this.#holdfast.sandboxes.create(body);
  }

  /** Newest first. */
  async list({ ended }: { readonly ended: boolean }): Promise<SandboxInfo[]> {
    const sandboxes: SandboxInfo[] = [];
    const status = ended ? (["creating", "running", "paused", "ended"] as const) : undefined;
    for await (const sandbox of this.#holdfast.sandboxes.list({ status })) sandboxes.push(sandbox);
    return sandboxes;
  }

  /** By its id or the beginning of it. */
  async find(name: string): Promise<Sandbox> {
    checkIdText(name);
    if (isFullId(name)) return this.connect(name);
    return this.connect(chooseByPrefix(name, await this.list({ ended: true })));
  }

  async connect(id: string): Promise<Sandbox> {
    try {
      return await this.#holdfast.sandboxes.connect(id);
    } catch (reason) {
      const error = HoldfastError.from(reason);
      if (error.code !== "sandbox_not_found") throw error;
      throw new HoldfastError("sandbox_not_found", `there is no sandbox ${id}`, {
        hint: "`holdfast ps --all` lists those there are.",
        cause: error,
      });
    }
  }

  get images(): Images {
    return this.#holdfast.images;
  }

  host(): Promise<HostInfo> {
    return this.#holdfast.host();
  }

  /** Of one sandbox, or of all. */
  events(sandbox: Sandbox | undefined, options: EventsOptions): AsyncGenerator<SandboxEvent> {
    return sandbox === undefined ? this.#holdfast.events(options) : sandbox.events(options);
  }
}

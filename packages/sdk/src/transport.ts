/** One HTTP request: made, tried again where that is safe, and its failure turned into a `HoldfastError`. */
import { HoldfastError } from "@holdfast/protocol";
import { canceled, delayBefore, isPassing, type Retry, type RetryOptions, retryFrom, sleep } from "./backoff.js";
import { errorFromResponse } from "./rebuild-error.js";
import { stoppableStream } from "./stoppable-stream.js";

/** Where the server is and who asks. */
export interface ConnectionOptions {
  /** Default: `HOLDFAST_URL` where there is an environment, else http://127.0.0.1:3000. */
  readonly url?: string | undefined;
  /** Default: `HOLDFAST_API_KEY` where there is an environment. */
  readonly apiKey?: string | undefined;
  /** Another `fetch`, to go through a proxy or a socket of your own. */
  readonly fetch?: typeof globalThis.fetch | undefined;
  readonly retry?: RetryOptions | undefined;
}

/** What can be sent as a file or as input. A stream is sent as it comes. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>;

type QueryValue = string | number | boolean | readonly string[] | undefined;

export interface RequestOptions {
  readonly query?: Readonly<Record<string, QueryValue>>;
  readonly json?: unknown;
  readonly content?: Content;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
  /** Whether a request that may have arrived can be sent once more. GET can. */
  readonly repeatable?: boolean;
}

const DEFAULT_URL = "http://127.0.0.1:3000";
/** A server that asks for a longer wait than this is not waited for. */
const MAX_RETRY_AFTER_MS = 30_000;
/** Of the reasons why a request failed, those where it certainly never reached a server. */
const NEVER_SENT: ReadonlySet<unknown> = new Set([
  "ECONNREFUSED",
  "ENOENT",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

interface Surroundings {
  readonly process?: { readonly env?: Readonly<Record<string, string | undefined>> };
  readonly Deno?: unknown;
}

function environment(name: string): string | undefined {
  const value = (globalThis as Surroundings).process?.env?.[name];
  return value === "" ? undefined : value;
}

/** Browsers send no stream over HTTP/1.1; they keep a Blob where it costs no memory. */
async function sendable(content: Content): Promise<Content> {
  const surroundings = globalThis as Surroundings;
  const sendsStreams = surroundings.process?.env !== undefined || surroundings.Deno !== undefined;
  return content instanceof ReadableStream && !sendsStreams ? new Response(content).blob() : content;
}

function reasonCode(reason: unknown): unknown {
  const cause = (reason as { cause?: { code?: unknown } } | null)?.cause;
  return cause?.code ?? (reason as { code?: unknown } | null)?.code;
}

function reasonText(reason: unknown): string {
  const cause = (reason as { cause?: unknown } | null)?.cause;
  const code = reasonCode(reason);
  const message = cause instanceof Error && cause.message !== "" ? cause.message : String((reason as Error)?.message);
  return typeof code === "string" && !message.includes(code) ? `${message} (${code})` : message;
}

export class Transport {
  readonly url: string;
  readonly retry: Retry;
  readonly #apiKey: string | undefined;
  readonly #fetch: typeof globalThis.fetch;

  constructor(options: ConnectionOptions = {}) {
    this.url = (options.url ?? environment("HOLDFAST_URL") ?? DEFAULT_URL).replace(/\/+$/, "");
    if (!URL.canParse(this.url)) {
      throw new HoldfastError(
        "invalid_argument",
        `url: expected an address such as ${DEFAULT_URL}, got "${this.url}"`,
        {
          details: { field: "url" },
        },
      );
    }
    this.retry = retryFrom(options.retry);
    this.#apiKey = options.apiKey ?? environment("HOLDFAST_API_KEY");
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  }

  async json<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    const response = await this.send(method, path, options);
    try {
      return (await response.json()) as T;
    } catch (reason) {
      throw this.failure(reason, options.signal);
    }
  }

  /** For requests whose answer says nothing but that it worked. */
  async done(method: string, path: string, options: RequestOptions = {}): Promise<void> {
    const response = await this.send(method, path, options);
    await response.body?.cancel().catch(() => {});
  }

  /** The answer, if it is a good one; else throws. */
  async send(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
    if (options.json !== undefined) return this.#send(method, path, options, JSON.stringify(options.json));
    const content = options.content === undefined ? undefined : await sendable(options.content);
    if (!(content instanceof ReadableStream)) return this.#send(method, path, options, content);
    const { stream, stop } = stoppableStream(content);
    try {
      return await this.#send(method, path, options, stream);
    } finally {
      stop();
    }
  }

  async #send(method: string, path: string, options: RequestOptions, body: Content | undefined): Promise<Response> {
    const { signal } = options;
    const canSendAgain = !(body instanceof ReadableStream);
    const init = this.#init(method, options, body);
    for (let attempt = 1; ; attempt += 1) {
      if (signal?.aborted) throw canceled(signal);
      let error: HoldfastError;
      let mayRetry: boolean;
      try {
        const response = await this.#fetch(this.#address(path, options.query), init);
        if (response.ok) return response;
        error = await errorFromResponse(response);
        // These two are said before anything is done.
        mayRetry = error.code === "server_stopping" || error.code === "rate_limited";
      } catch (reason) {
        error = this.failure(reason, signal);
        const repeatable = options.repeatable ?? method === "GET";
        mayRetry = error.code === "server_unreachable" && (repeatable || NEVER_SENT.has(reasonCode(reason)));
      }
      const delayMs = this.#delayMs(error, attempt);
      if (!mayRetry || !canSendAgain || !isPassing(error) || delayMs === undefined) throw error;
      await sleep(delayMs, signal);
    }
  }

  /** What a failed `fetch`, or a body that broke off, means to the caller. */
  failure(reason: unknown, signal?: AbortSignal): HoldfastError {
    if (reason instanceof HoldfastError) return reason;
    if (signal?.aborted) return canceled(signal);
    const text = reasonText(reason);
    const distrusted = /CERT|certificate|self.signed/i.test(`${text} ${reasonCode(reason)}`);
    return new HoldfastError("server_unreachable", `cannot reach the server at ${this.url}: ${text}`, {
      hint: distrusted
        ? "Its certificate is not trusted here. In Node, NODE_EXTRA_CA_CERTS names the file of the CA that `holdfast serve` prints."
        : "Is it running? `holdfast serve` starts it; HOLDFAST_URL says where it is.",
      details: { url: this.url },
      cause: reason,
    });
  }

  #init(method: string, options: RequestOptions, body: Content | undefined): RequestInit {
    const type = options.json === undefined ? "application/octet-stream" : "application/json";
    return {
      method,
      headers: {
        ...(this.#apiKey === undefined ? {} : { "x-api-key": this.#apiKey }),
        ...(body === undefined ? {} : { "content-type": type }),
        ...options.headers,
      },
      // A redirect would take the key to somewhere else.
      redirect: "error",
      ...(body === undefined ? {} : { body: body as NonNullable<RequestInit["body"]> }),
      ...(body instanceof ReadableStream ? { duplex: "half" as const } : {}),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    };
  }

  #address(path: string, query: RequestOptions["query"] = {}): string {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      for (const item of Array.isArray(value) ? value : [value]) {
        if (item !== undefined) search.append(name, String(item));
      }
    }
    return `${this.url}/v1${path}${search.size > 0 ? `?${search}` : ""}`;
  }

  /** Undefined: enough. */
  #delayMs(error: HoldfastError, attempt: number): number | undefined {
    if (attempt >= this.retry.attempts) return undefined;
    const wanted = error.details.retryAfterSeconds;
    if (typeof wanted !== "number") return delayBefore(this.retry, attempt);
    return wanted * 1000 > MAX_RETRY_AFTER_MS ? undefined : wanted * 1000;
  }
}

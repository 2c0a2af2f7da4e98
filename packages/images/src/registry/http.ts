/** The distribution API of one registry: authorization, redirects, retries, and errors that say what was asked for. */
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { HoldfastError } from "@holdfast/protocol";
import { Authorizer } from "./auth.js";
import { findCredentials, type RegistryAuth } from "./credentials.js";
import { parseAnswer, printable, registryFailed, wrongContent } from "./errors.js";
import { isLoopback, registryOrigin } from "./reference.js";
import { LONGEST_RETRY_AFTER_MS, parseRetryAfterMs, Retries, type RetryOptions } from "./retries.js";
import { isCut, type MayReach, type RequestBody, readWhole, Transport } from "./transport.js";

export interface RegistryOptions {
  readonly auth?: RegistryAuth | undefined;
  /** Absent: only for hosts that are this machine by name. */
  readonly plainHttp?: boolean | undefined;
  /** Certificates, in PEM, to be trusted beside the usual ones. */
  readonly caFile?: string | undefined;
  readonly connectTimeoutMs?: number | undefined;
  readonly idleTimeoutMs?: number | undefined;
  readonly retry?: RetryOptions | undefined;
  /** Absent: it may connect to any address. */
  readonly mayReach?: MayReach | undefined;
}

export interface RegistryRequest {
  readonly method: "GET" | "HEAD" | "POST" | "PATCH" | "PUT" | "DELETE";
  /** Below the registry's origin, or whole as a registry has named it. */
  readonly url: string | URL;
  /** For the token: `repository:team/app:pull`. */
  readonly scopes: readonly string[];
  /** For errors, as a clause: `reading the manifest of team/app:1`. */
  readonly doing: string;
  /** The statuses that are an answer; all others are errors. */
  readonly expect: readonly number[];
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: RequestBody | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly answerTimeoutMs?: number | undefined;
  /** False: the caller goes on by himself after a cut (`CutError`) or a failing registry. */
  readonly retry?: boolean | undefined;
}

export interface RegistryResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Where it came from in the end. */
  readonly url: URL;
  readonly message: IncomingMessage;
}

const MAX_REDIRECTS = 5;
const MAX_ERROR_BYTES = 16 * 1024;
/** The first for learning what the registry wants, the second for a token that has run out. */
const MAX_CHALLENGES = 2;
const REDIRECTS = [301, 302, 303, 307, 308];

/** A connection broke, or the registry failed for the moment; the request may be made again. */
export class CutError extends Error {
  override readonly name = "CutError";
  readonly afterMs: number | undefined;
  readonly failure: HoldfastError;

  constructor(failure: HoldfastError, afterMs?: number) {
    super(failure.message, { cause: failure });
    this.failure = failure;
    this.afterMs = afterMs;
  }
}

export class RegistryClient {
  readonly registry: string;
  readonly origin: string;
  readonly retry: RetryOptions;
  readonly #transport: Transport;
  readonly #authorizer: Authorizer;
  /** Whether it has ever answered: one that never did is not there, and not waited for. */
  #reached = false;

  private constructor(registry: string, options: RegistryOptions, transport: Transport, authorizer: Authorizer) {
    this.registry = registry;
    this.origin = registryOrigin(registry, options);
    this.retry = options.retry ?? {};
    this.#transport = transport;
    this.#authorizer = authorizer;
  }

  static async open(registry: string, options: RegistryOptions = {}): Promise<RegistryClient> {
    const plainHttp = options.plainHttp ?? (options.caFile === undefined ? undefined : false);
    const found = await findCredentials(registry, options.auth ?? { kind: "none" });
    const transport = await Transport.open(options);
    const origin = registryOrigin(registry, { plainHttp });
    const authorizer = new Authorizer({ registry, origin, transport, found, retry: options.retry ?? {} });
    return new RegistryClient(registry, { ...options, plainHttp }, transport, authorizer);
  }

  close(): void {
    this.#transport.close();
  }

  /** Resolves with one of the statuses expected; the body is the caller's to read or to `discard`. */
  async request(request: RegistryRequest): Promise<RegistryResponse> {
    const retries = new Retries(this.retry);
    for (;;) {
      try {
        return await this.#once(request);
      } catch (reason) {
        if (!(reason instanceof CutError)) throw reason;
        if (request.retry === false) throw reason;
        if (!(await retries.again({ afterMs: reason.afterMs, signal: request.signal }))) throw reason.failure;
      }
    }
  }

  /** The whole of an answer that has to be small; tried again if it is cut. */
  async requestSmall(
    request: RegistryRequest,
    maxBytes: number,
  ): Promise<{ readonly response: RegistryResponse; readonly body: Buffer }> {
    const retries = new Retries(this.retry);
    for (;;) {
      const response = await this.request(request);
      let body: Buffer | undefined;
      try {
        body = await readWhole(response.message, maxBytes);
      } catch (cause) {
        this.assertNotCanceled(request.signal);
        if (!isCut(cause)) throw this.#broken(request, cause).failure;
        if (await retries.again({ signal: request.signal })) continue;
        throw this.#broken(request, cause).failure;
      }
      if (body === undefined) {
        throw wrongContent(this.registry, `${request.doing}: the answer is larger than ${maxBytes} bytes`, {
          maxBytes,
        });
      }
      return { response, body };
    }
  }

  /** So that the connection can be used again; a long rest is not waited for. */
  async discard(response: RegistryResponse): Promise<void> {
    try {
      await readWhole(response.message, MAX_ERROR_BYTES);
    } catch {
      // It would not have been used.
    }
  }

  assertNotCanceled(signal: AbortSignal | undefined): void {
    if (signal?.aborted === true) throw new HoldfastError("canceled", "the operation was canceled");
  }

  /** One try, with whatever authorization it needs. */
  async #once(request: RegistryRequest): Promise<RegistryResponse> {
    for (let challenges = 0; ; challenges++) {
      const authorization = await this.#authorizer.header(request.scopes, request.signal);
      const response = await this.#follow(request, authorization);
      const { status, headers } = response;
      if (request.expect.includes(status)) return response;
      const ours = response.url.origin === this.origin;
      if (status === 401 && ours && challenges < MAX_CHALLENGES) {
        if (this.#authorizer.challenged(headers["www-authenticate"], authorization)) {
          await this.discard(response);
          continue;
        }
      }
      const failure = await this.#failure(request, response);
      if (status !== 429 && status < 500) throw failure;
      throw new CutError(failure, parseRetryAfterMs(headers["retry-after"], Date.now()));
    }
  }

  async #follow(request: RegistryRequest, authorization: string | undefined): Promise<RegistryResponse> {
    let url = new URL(request.url, this.origin);
    for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
      let message: IncomingMessage;
      try {
        message = await this.#transport.send({
          method: request.method,
          url,
          // Only the registry itself is told who we are: where it sends us is somebody else.
          headers: {
            ...request.headers,
            ...(authorization === undefined || url.origin !== this.origin ? {} : { authorization }),
          },
          body: request.body,
          signal: request.signal,
          answerTimeoutMs: request.answerTimeoutMs,
        });
      } catch (reason) {
        throw this.#broken(request, reason);
      }
      this.#reached = true;
      const response = { status: message.statusCode ?? 0, headers: message.headers, url, message };
      if (!REDIRECTS.includes(response.status) || request.expect.includes(response.status)) return response;
      await this.discard(response);
      url = this.#redirected(request, response);
    }
    throw registryFailed({
      registry: this.registry,
      doing: request.doing,
      problem: `it redirected more than ${MAX_REDIRECTS} times`,
    });
  }

  #redirected(request: RegistryRequest, response: RegistryResponse): URL {
    const location = response.headers.location;
    const keepsMethod = request.method === "GET" || request.method === "HEAD" || response.status >= 307;
    if (location === undefined || !keepsMethod) {
      throw this.#refuse(request.doing, `status ${response.status} without a place to go to`);
    }
    return this.resolve(location, response.url, request.doing);
  }

  /** An address that a registry has named: no less safe than where it was named. */
  resolve(location: string, from: URL, doing: string): URL {
    if (location.length > 16_384 || !URL.canParse(location, from.href)) throw this.#refuse(doing, "not an address");
    const url = new URL(location, from);
    if (url.protocol !== "https:" && url.protocol !== "http:") throw this.#refuse(doing, "not a web address");
    if (url.username !== "" || url.password !== "") throw this.#refuse(doing, "credentials in an address");
    if (url.protocol === "http:" && from.protocol === "https:") throw this.#refuse(doing, "from TLS to plain HTTP");
    if (isLoopback(url.hostname) && !isLoopback(from.hostname)) throw this.#refuse(doing, "to this very machine");
    return url;
  }

  #refuse(doing: string, what: string): HoldfastError {
    return registryFailed({
      registry: this.registry,
      doing,
      problem: `it sent us elsewhere: ${what}, which is refused`,
    });
  }

  async #failure(request: RegistryRequest, response: RegistryResponse): Promise<HoldfastError> {
    let body: Buffer | undefined;
    try {
      body = await readWhole(response.message, MAX_ERROR_BYTES);
    } catch {
      // The status says enough.
    }
    const answer = parseAnswer(response.status, body ?? Buffer.alloc(0));
    const afterMs = parseRetryAfterMs(response.headers["retry-after"], Date.now());
    const patience = afterMs !== undefined && afterMs > LONGEST_RETRY_AFTER_MS ? Math.ceil(afterMs / 1000) : undefined;
    return registryFailed({
      registry: this.registry,
      doing: request.doing,
      answer,
      ...(answer.status === 401 ? { hint: this.#authorizer.hint() } : {}),
      ...(patience === undefined ? {} : { hint: `It asks to be left alone for ${patience} seconds.` }),
      details: {
        url: `${response.url.origin}${response.url.pathname}`,
        ...(patience ? { retryAfterS: patience } : {}),
      },
    });
  }

  /** What the transport threw: a cut, or something that will not get better. */
  #broken(request: RegistryRequest, cause: unknown): CutError {
    if (cause instanceof HoldfastError) throw cause;
    const { code = "", message } = cause as NodeJS.ErrnoException;
    const failure = registryFailed({
      registry: this.registry,
      doing: request.doing,
      problem: printable(message === "" ? code : message),
      hint: hintForBroken(code),
      cause,
      details: { reason: code },
    });
    const unreachable = code === "ECONNREFUSED" || code === "EHOSTUNREACH" || code === "ENETUNREACH";
    if (isCut(cause) || (unreachable && this.#reached)) return new CutError(failure);
    throw failure;
  }

  /** For whoever reads a long answer himself. */
  cut(request: Pick<RegistryRequest, "doing" | "signal">, cause: unknown): CutError {
    this.assertNotCanceled(request.signal);
    return this.#broken(request as RegistryRequest, cause);
  }
}

function hintForBroken(code: string): string | undefined {
  if (/CERT|SELF_SIGNED|VERIFY_LEAF|ISSUER/.test(code)) {
    return "Its certificate is not trusted here. Name the authority's certificate with --ca-file.";
  }
  if (code === "EPROTO" || code === "ERR_SSL_WRONG_VERSION_NUMBER") return "If it speaks plain HTTP, say --plain-http.";
  if (code.startsWith("HPE_")) return "What answers there does not speak HTTP; does it want TLS?";
  if (code === "ENOTFOUND" || code === "EAI_AGAIN")
    return "The name is not known. Check its spelling and this host's DNS.";
  if (code === "ECONNREFUSED") return "Nothing listens there. Check the host and the port.";
  return "Check the connection, and try again.";
}

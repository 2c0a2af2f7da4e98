/** One HTTP exchange: timeouts, back-pressure both ways, and errors that tell a cut connection from everything else. */
import { lookup } from "node:dns";
import { readFile } from "node:fs/promises";
import http, { type IncomingMessage } from "node:http";
import https from "node:https";
import { isIP, type LookupFunction } from "node:net";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream";
import { rootCertificates } from "node:tls";
import { HoldfastError } from "@holdfast/protocol";

export interface RequestBody {
  readonly sizeBytes: number;
  /** Once for every time that it has to be sent. */
  open(): Readable | Uint8Array;
}

export interface TransportRequest {
  readonly method: string;
  readonly url: URL;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: RequestBody | undefined;
  readonly signal?: AbortSignal | undefined;
  /** How long it may think once it has everything. */
  readonly answerTimeoutMs?: number | undefined;
}

export interface TransportOptions {
  readonly connectTimeoutMs?: number | undefined;
  readonly idleTimeoutMs?: number | undefined;
  /** Certificates, in PEM, to be trusted beside the usual ones. */
  readonly caFile?: string | undefined;
  readonly mayReach?: MayReach | undefined;
}

/**
 * Whether this process may connect there for whoever asked: it reaches what they could not. Asked of every address that a
 * name turns out to have, for registries, their token servers and wherever they redirect to.
 */
export type MayReach = (address: string, port: number) => boolean;

const CONNECT_TIMEOUT_MS = 20_000;
const IDLE_TIMEOUT_MS = 60_000;
const CUT_CODES = new Set([
  "ECONNRESET",
  "ECONNABORTED",
  "EPIPE",
  "ETIMEDOUT",
  "EAI_AGAIN",
  "ERR_STREAM_PREMATURE_CLOSE",
  "ERR_STREAM_DESTROYED",
  "HOLDFAST_TIMEOUT",
]);

/** Something between us broke or stood still; the same request may work. */
export function isCut(reason: unknown): boolean {
  return reason instanceof Error && CUT_CODES.has((reason as NodeJS.ErrnoException).code ?? "");
}

/** The body could not be read here: no fault of the network. */
class BodyError extends Error {
  override readonly name = "BodyError";
}

export class Transport {
  readonly #connectTimeoutMs: number;
  readonly #idleTimeoutMs: number;
  readonly #agents: { readonly "http:": http.Agent; readonly "https:": https.Agent };
  readonly #mayReach: MayReach | undefined;

  private constructor(options: TransportOptions, ca: string[] | undefined) {
    this.#connectTimeoutMs = options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
    this.#idleTimeoutMs = options.idleTimeoutMs ?? IDLE_TIMEOUT_MS;
    this.#mayReach = options.mayReach;
    this.#agents = {
      "http:": new http.Agent({ keepAlive: true }),
      "https:": new https.Agent({ keepAlive: true, ...(ca === undefined ? {} : { ca }) }),
    };
  }

  static async open(options: TransportOptions = {}): Promise<Transport> {
    if (options.caFile === undefined) return new Transport(options, undefined);
    let pem: string;
    try {
      pem = await readFile(options.caFile, "utf8");
    } catch (cause) {
      throw new HoldfastError("invalid_argument", `caFile: ${options.caFile} cannot be read`, {
        details: { field: "caFile" },
        cause,
      });
    }
    if (!pem.includes("-----BEGIN CERTIFICATE-----")) {
      throw new HoldfastError("invalid_argument", `caFile: ${options.caFile} holds no certificate in PEM`, {
        details: { field: "caFile" },
      });
    }
    return new Transport(options, [...rootCertificates, pem]);
  }

  close(): void {
    for (const agent of Object.values(this.#agents)) agent.destroy();
  }

  /** Resolves with the head of the answer; its body is the caller's to read or destroy. */
  async send(request: TransportRequest): Promise<IncomingMessage> {
    try {
      return await this.#exchange(request);
    } catch (reason) {
      if (request.signal?.aborted === true) throw new HoldfastError("canceled", "the operation was canceled");
      throw reason instanceof BodyError ? reason.cause : reason;
    }
  }

  #exchange({ method, url, headers, body, signal, answerTimeoutMs }: TransportRequest): Promise<IncomingMessage> {
    const { promise, resolve, reject } = promiseParts<IncomingMessage>();
    const secure = url.protocol === "https:";
    const port = Number(url.port || (secure ? 443 : 80));
    const host = url.hostname.replace(/^\[|\]$/g, "");
    // Addresses are not looked up.
    if (isIP(host) !== 0 && this.#mayReach?.(host, port) === false) throw outOfReach(url.host);
    const request = (secure ? https : http).request(url, {
      method,
      agent: this.#agents[secure ? "https:" : "http:"],
      headers: {
        "user-agent": "holdfast",
        "accept-encoding": "identity",
        ...(body === undefined ? {} : { "content-length": String(body.sizeBytes) }),
        ...headers,
      },
      ...(this.#mayReach === undefined ? {} : { lookup: lookupAmong(this.#mayReach, port) }),
    });
    let answer: IncomingMessage | undefined;
    const giveUp = (reason: Error): void => {
      (answer ?? request).destroy(reason);
    };
    // Node's own `signal` destroys the connection even when the answer is complete, in a moment when nobody listens to it.
    const onAbort = (): void => {
      if (answer?.complete !== true) giveUp(new HoldfastError("canceled", "the operation was canceled"));
    };
    if (signal?.aborted === true) onAbort();
    signal?.addEventListener("abort", onAbort, { once: true });
    request.once("close", () => signal?.removeEventListener("abort", onAbort));
    request.setTimeout(this.#idleTimeoutMs, () => giveUp(timeout("nothing was sent or received for too long")));
    request.once("error", reject);
    // Later ones concern whoever reads the answer, and reach him through it.
    request.on("error", () => undefined);
    request.once("socket", (socket) => {
      if (!socket.connecting) return;
      const timer = setTimeout(() => giveUp(timeout("no connection came about")), this.#connectTimeoutMs);
      for (const event of [secure ? "secureConnect" : "connect", "close"])
        socket.once(event, () => clearTimeout(timer));
    });
    request.once("finish", () => request.setTimeout(answerTimeoutMs ?? this.#idleTimeoutMs));
    let source: Readable | undefined;
    request.once("response", (message) => {
      answer = message;
      request.setTimeout(this.#idleTimeoutMs);
      // Refused before it had everything: no more is sent, and the connection is of no further use.
      if (!request.writableFinished) {
        source?.unpipe(request);
        source?.destroy();
        message.once("close", () => request.destroy());
      }
      resolve(message);
    });
    const content = body?.open();
    if (content === undefined || content instanceof Uint8Array) {
      request.end(content);
    } else {
      source = content;
      pipeline(content, request, (cause) => {
        if (cause != null && content.errored != null && content.errored === cause && answer === undefined) {
          reject(new BodyError("the body could not be read", { cause }));
        }
      });
    }
    return promise;
  }
}

/** Everything of a small answer. More than `maxBytes` is undefined, and the connection is given up. */
export async function readWhole(message: IncomingMessage, maxBytes: number): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBytes) {
      message.destroy();
      return undefined;
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** As Node's own, without the addresses that are out of reach. */
function lookupAmong(mayReach: MayReach, port: number): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, found) => {
      if (error !== null) return callback(error, []);
      const reachable = found.filter(({ address }) => mayReach(address, port));
      const [first] = reachable;
      if (first === undefined) return callback(outOfReach(hostname), []);
      return options.all === true ? callback(null, reachable) : callback(null, first.address, first.family);
    });
  };
}

/** Not which address it was: whoever asked need not learn this host's names for things. */
function outOfReach(host: string): HoldfastError {
  return new HoldfastError("access_denied", `registry ${host}: it may not be reached from this server`, {
    hint: "The operator decides which addresses may be.",
    details: { registry: host },
  });
}

function timeout(text: string): Error {
  return Object.assign(new Error(text), { code: "HOLDFAST_TIMEOUT" });
}

function promiseParts<T>(): { promise: Promise<T>; resolve: (value: T) => void; reject: (reason: unknown) => void } {
  let resolve: (value: T) => void = () => undefined;
  let reject: (reason: unknown) => void = () => undefined;
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}

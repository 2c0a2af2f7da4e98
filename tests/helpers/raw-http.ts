/** HTTP over a bare socket: for what a proper client cannot be made to send, or to leave unsaid. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { patienceMs } from "./scale.js";

const ANSWER_MS = 3000;
const CRLF = "\r\n";

export type HeaderList = readonly (readonly [name: string, value: string | number])[];

export interface RawRequest {
  readonly method?: string;
  /** As it stands in the request line, byte for byte (latin1). */
  readonly target?: string;
  readonly headers?: HeaderList;
  /** Its length is announced unless the headers say how it is framed. */
  readonly body?: string | Uint8Array;
}

export interface RawAnswer {
  readonly status: number;
  /** Names in lower case; values that came more than once are joined. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  readonly text: string;
}

/** Texts are taken byte for byte. */
function bytesOf(text: string | Uint8Array): Buffer {
  return typeof text === "string" ? Buffer.from(text, "latin1") : Buffer.from(text);
}

function utf8(text: string | Uint8Array): Buffer {
  return typeof text === "string" ? Buffer.from(text, "utf8") : Buffer.from(text);
}

/** The first line and the headers, with the empty line. */
export function requestHead({ method = "GET", target = "/", headers = [] }: RawRequest): Buffer {
  const lines = [`${method} ${target} HTTP/1.1`, ...headers.map(([name, value]) => `${name}: ${value}`)];
  return bytesOf(lines.join(CRLF) + CRLF + CRLF);
}

function isFramed(headers: HeaderList): boolean {
  return headers.some(([name]) => /^(content-length|transfer-encoding)$/i.test(name));
}

export function requestBytes(request: RawRequest): Buffer {
  const { headers = [], body } = request;
  if (body === undefined) return requestHead(request);
  const content = utf8(body);
  const framed: HeaderList = isFramed(headers) ? headers : [...headers, ["Content-Length", content.length]];
  return Buffer.concat([requestHead({ ...request, headers: framed }), content]);
}

/** One chunk of a chunked body; an empty one is the last. */
export function chunk(content: string | Uint8Array): Buffer {
  const bytes = utf8(content);
  return Buffer.concat([bytesOf(bytes.length.toString(16) + CRLF), bytes, bytesOf(CRLF)]);
}

function parseHead(text: string): Pick<RawAnswer, "status" | "headers"> {
  const [first = "", ...lines] = text.split(CRLF);
  const [, status] = /^HTTP\/1\.[01] (\d{3})/.exec(first) ?? [];
  if (status === undefined) throw new Error(`not the first line of an answer: ${JSON.stringify(first.slice(0, 200))}`);
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`;
  }
  return { status: Number(status), headers };
}

/** Undefined as long as it is not complete. */
function parseChunks(bytes: Buffer): { readonly body: Buffer; readonly end: number } | undefined {
  const parts: Buffer[] = [];
  for (let at = 0; ; ) {
    const lineEnd = bytes.indexOf(CRLF, at);
    if (lineEnd < 0) return undefined;
    const size = Number.parseInt(bytes.toString("latin1", at, lineEnd), 16);
    const next = lineEnd + 2 + size + 2;
    if (next > bytes.length) return undefined;
    if (size === 0) return { body: Buffer.concat(parts), end: next };
    parts.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size));
    at = next;
  }
}

const BODILESS: ReadonlySet<number> = new Set([204, 304]);

/** The first answer in the bytes and how long it is; undefined as long as it is not complete. */
function parseAnswer(
  bytes: Buffer,
  options: { readonly ended: boolean; readonly isHead: boolean },
): { readonly answer: RawAnswer; readonly length: number } | undefined {
  const headEnd = bytes.indexOf(CRLF + CRLF);
  if (headEnd < 0) return undefined;
  const { status, headers } = parseHead(bytes.toString("latin1", 0, headEnd));
  const start = headEnd + 4;
  const rest = bytes.subarray(start);
  const done = (body: Buffer, length: number) => ({
    answer: { status, headers, body: Buffer.from(body), text: body.toString("utf8") },
    length: start + length,
  });
  if (status < 200) return parseAnswer(rest, options);
  if (options.isHead || BODILESS.has(status)) return done(Buffer.alloc(0), 0);
  if (headers["transfer-encoding"] !== undefined) {
    const chunks = parseChunks(rest);
    return chunks === undefined ? undefined : done(chunks.body, chunks.end);
  }
  const announced = headers["content-length"];
  if (announced === undefined) return options.ended ? done(rest, rest.length) : undefined;
  const length = Number(announced);
  return rest.length < length ? undefined : done(rest.subarray(0, length), length);
}

export class RawConnection {
  readonly socket: Socket;
  #received = Buffer.alloc(0);
  #ended = false;
  #reading = false;
  #wake: () => void = () => {};

  private constructor(socket: Socket) {
    this.socket = socket;
    const onEnd = () => {
      this.#ended = true;
      this.#wake();
    };
    // A server may well reset what it was sent; what counts is what it answered before.
    socket.on("error", onEnd).on("close", onEnd).on("end", onEnd);
  }

  static async open(port: number, host = "127.0.0.1"): Promise<RawConnection> {
    // Half-open: a client that has said everything may still read.
    const socket = connect({ port, host, allowHalfOpen: true });
    await once(socket, "connect");
    socket.setNoDelay(true);
    return new RawConnection(socket);
  }

  /** The other side has closed, or reset, the connection. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Resolves when the bytes are out of this process, or never will be. */
  async send(...pieces: readonly (string | Uint8Array)[]): Promise<void> {
    const bytes = Buffer.concat(pieces.map(bytesOf));
    if (this.socket.destroyed) return;
    await new Promise<void>((resolve) => {
      this.socket.write(bytes, () => resolve());
      this.socket.once("close", resolve);
    });
  }

  /** The next answer, whole. Undefined: the connection was closed before there was one. */
  async answer(
    options: { readonly timeoutMs?: number; readonly isHead?: boolean } = {},
  ): Promise<RawAnswer | undefined> {
    const { timeoutMs = patienceMs(ANSWER_MS), isHead = false } = options;
    return this.#until(() => {
      const parsed = parseAnswer(this.#received, { ended: this.#ended, isHead });
      if (parsed === undefined) return undefined;
      this.#received = this.#received.subarray(parsed.length);
      return parsed.answer;
    }, timeoutMs);
  }

  /** Waits for so many bytes of an answer that never ends. What there is, if the connection ends before. */
  async receive(length: number, timeoutMs = patienceMs(ANSWER_MS)): Promise<Buffer> {
    await this.#until(() => (this.#received.length >= length ? true : undefined), timeoutMs);
    return this.#received;
  }

  /** Resolves when the other side has closed. */
  async closed(timeoutMs = patienceMs(ANSWER_MS)): Promise<void> {
    await this.#until(() => undefined, timeoutMs);
  }

  destroy(): void {
    this.socket.destroy();
  }

  /** Nothing is read from the socket before somebody asks: a client that does not read holds the sender up. */
  #startReading(): void {
    if (this.#reading) return;
    this.#reading = true;
    this.socket.on("data", (bytes: Buffer) => {
      this.#received = Buffer.concat([this.#received, bytes]);
      this.#wake();
    });
  }

  async #until<T>(look: () => T | undefined, timeoutMs: number): Promise<T | undefined> {
    this.#startReading();
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      const found = look();
      if (found !== undefined || this.#ended) return found;
      const leftMs = deadline - Date.now();
      if (leftMs <= 0) {
        const shown = this.#received.toString("latin1", 0, 300);
        throw new Error(`nothing more came within ${timeoutMs} ms after ${JSON.stringify(shown)}`);
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, leftMs);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }
}

/** Sends these bytes over a connection of their own and waits for one answer. */
export async function exchangeBytes(
  port: number,
  bytes: string | Uint8Array,
  options: { readonly isHead?: boolean; readonly timeoutMs?: number } = {},
): Promise<RawAnswer | undefined> {
  const connection = await RawConnection.open(port);
  try {
    // Not waited for: a server that has heard enough answers before it has read everything.
    void connection.send(bytes);
    return await connection.answer(options);
  } finally {
    connection.destroy();
  }
}

/** A whole request and its answer. */
export async function exchange(port: number, request: RawRequest): Promise<RawAnswer> {
  const answer = await exchangeBytes(port, requestBytes(request), { isHead: request.method === "HEAD" });
  if (answer === undefined) {
    throw new Error(`${request.method ?? "GET"} ${request.target?.slice(0, 200) ?? "/"}: closed without an answer`);
  }
  return answer;
}

/** The envelope that a message of a Connect stream is in. */
export function envelope(
  message: unknown,
  options: { readonly flags?: number; readonly length?: number } = {},
): Buffer {
  const content = utf8(
    typeof message === "string" || message instanceof Uint8Array ? message : JSON.stringify(message),
  );
  const head = Buffer.alloc(5);
  head.writeUInt8(options.flags ?? 0, 0);
  head.writeUInt32BE(options.length ?? content.length, 1);
  return Buffer.concat([head, content]);
}

export interface EnvelopeFound {
  readonly flags: number;
  readonly message: unknown;
}

export function parseEnvelopes(bytes: Buffer): EnvelopeFound[] {
  const found: EnvelopeFound[] = [];
  for (let at = 0; at + 5 <= bytes.length; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    if (end > bytes.length) break;
    found.push({ flags: bytes.readUInt8(at), message: JSON.parse(bytes.toString("utf8", at + 5, end)) });
    at = end;
  }
  return found;
}

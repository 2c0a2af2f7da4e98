/** HTTP with nothing above it: what is left of a client's time when the client does next to nothing. */
import { Agent, type IncomingMessage, request } from "node:http";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

const agent = new Agent({ keepAlive: true });
const ENVD_PORT = "49983";
const ENVELOPE_HEAD_BYTES = 5;

export interface RawRequest {
  readonly url: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Buffer | Readable;
}

/** The headers that name a sandbox and open it. */
export function sandboxHeaders(sandboxId: string, token: string): Record<string, string> {
  return { "e2b-sandbox-id": sandboxId, "e2b-sandbox-port": ENVD_PORT, "x-access-token": token };
}

export async function exchange({ url, method, headers, body }: RawRequest): Promise<IncomingMessage> {
  const length = typeof body === "string" || Buffer.isBuffer(body) ? { "content-length": Buffer.byteLength(body) } : {};
  const sent = request(url, { method, agent, headers: { ...headers, ...length } });
  const answered = new Promise<IncomingMessage>((resolve, reject) => sent.on("response", resolve).on("error", reject));
  if (body === undefined || typeof body === "string" || Buffer.isBuffer(body)) sent.end(body);
  else await pipeline(body, sent);
  const response = await answered;
  const { statusCode = 0 } = response;
  if (statusCode < 200 || statusCode > 299) throw new Error(`${method} ${url}: ${statusCode} ${await text(response)}`);
  return response;
}

export async function text(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

/** To the end; resolves to how many bytes there were. */
export async function countBytes(response: IncomingMessage): Promise<number> {
  let bytes = 0;
  response.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
  });
  await new Promise<void>((resolve, reject) => response.on("end", resolve).on("error", reject));
  return bytes;
}

/** One message of a Connect stream. */
export function envelope(message: unknown): Buffer {
  const json = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(ENVELOPE_HEAD_BYTES);
  head.writeUInt32BE(json.length, 1);
  return Buffer.concat([head, json]);
}

/** A real HTTP server that a test answers from. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type ConnectionOptions, Transport } from "../transport.js";

export type Answer = (request: IncomingMessage, response: ServerResponse) => void | Promise<void>;

const open = new Set<Server>();

/** For `afterEach`. */
export async function closeHttpServers(): Promise<void> {
  for (const server of open) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
  open.clear();
}

export async function useHttpServer(answer: Answer): Promise<{ readonly url: string; readonly transport: Transport }> {
  const server = createServer((request, response) => {
    void Promise.resolve(answer(request, response)).catch((error: unknown) => response.destroy(error as Error));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  open.add(server);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, transport: new Transport(quick({ url })) };
}

/** Waits that a test can afford. */
export function quick(options: ConnectionOptions): ConnectionOptions {
  return { apiKey: "e2b_test", retry: { minDelayMs: 1, maxDelayMs: 5, reconnectMs: 2000 }, ...options };
}

export async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

export function sendJson(response: ServerResponse, value: unknown, status = 200): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}

export function line(value: unknown): string {
  return `${JSON.stringify(value)}\n`;
}

/** Resolves when these bytes have left, so that a cut after them cuts nothing off. */
export async function flush(response: ServerResponse, text: string | Uint8Array): Promise<void> {
  await new Promise<void>((resolve) => response.write(text, () => resolve()));
}

export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

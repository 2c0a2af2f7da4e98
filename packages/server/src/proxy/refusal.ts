/** What a client is told when a request cannot reach its port: JSON as documented, or a page for a person. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { SandboxEnding, SandboxId } from "@holdfast/protocol";
import { renderRefusalPage } from "./refusal-page.js";

export interface Refusal {
  readonly status: number;
  readonly message: string;
  readonly sandboxId?: SandboxId;
  readonly port?: number;
  /** How the sandbox ended, if it did. */
  readonly ending?: SandboxEnding;
  readonly retryAfterSeconds?: number;
}

export const SANDBOX_NOT_FOUND = "The sandbox was not found";
export const PORT_NOT_OPEN = "The sandbox is running but port is not open";

/** Every browser calls itself so, since the days of the first. */
const BROWSER = /^Mozilla\//;

/**
 * A browser gets a page, as from E2B. What runs in it and wants something else shows that: it says so, sends something, or has
 * the token of E2B's SDKs, whose errors show the message of a body and nothing else.
 */
export function wantsPage({ method, headers }: Pick<IncomingMessage, "headers" | "method">): boolean {
  const accept = (headers.accept ?? "").toLowerCase();
  if (accept.includes("text/html")) return true;
  if (accept.includes("json") || headers["x-access-token"] !== undefined) return false;
  return (method === "GET" || method === "HEAD") && BROWSER.test(headers["user-agent"] ?? "");
}

function toBody({ status, message, sandboxId, port, ending }: Refusal): Record<string, unknown> {
  return {
    ...(sandboxId === undefined ? {} : { sandboxId }),
    message,
    ...(port === undefined ? {} : { port }),
    code: status,
    ...(ending === undefined ? {} : { ending: ending.message, cause: ending.cause }),
  };
}

export function refuse(request: IncomingMessage, response: ServerResponse, refusal: Refusal): void {
  const page = wantsPage(request);
  const text = page ? renderRefusalPage(refusal) : JSON.stringify(toBody(refusal));
  response.statusCode = refusal.status;
  response.setHeader("Content-Type", page ? "text/html; charset=utf-8" : "application/json; charset=utf-8");
  response.setHeader("Content-Length", Buffer.byteLength(text));
  response.setHeader("Cache-Control", "no-store");
  response.setHeader("X-Content-Type-Options", "nosniff");
  if (refusal.retryAfterSeconds !== undefined) response.setHeader("Retry-After", refusal.retryAfterSeconds);
  if (page) {
    response.setHeader("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors *");
    response.setHeader("Referrer-Policy", "no-referrer");
  }
  response.end(request.method === "HEAD" ? undefined : text);
}

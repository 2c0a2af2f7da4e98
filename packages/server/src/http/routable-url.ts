/** Paths that no router can read go to a place of their own, so that they meet the same checks as all others. */
import type { IncomingMessage } from "node:http";
import { HoldfastError } from "@holdfast/protocol";

export const UNREADABLE = "/.unreadable";

function isReadable(url: string): boolean {
  try {
    decodeURIComponent(url.split(/[?#]/, 1)[0] ?? "");
    return true;
  } catch {
    return false;
  }
}

/** For Fastify's `rewriteUrl`. */
export function routableUrl(request: Pick<IncomingMessage, "url">): string {
  const url = request.url ?? "/";
  return isReadable(url) ? url : UNREADABLE;
}

export function unreadablePath(): HoldfastError {
  return new HoldfastError("invalid_argument", "path: expected percent-encoded UTF-8, got something else", {
    details: { field: "path" },
  });
}

/**
 * Headers on their way through. A request is written anew from what Node's parser made of it, never spliced: what frames a
 * message here is decided here, and a server inside that reads headers differently finds nothing to differ about.
 */
import type { IncomingMessage } from "node:http";

/** Of one connection only, not of the message. */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "transfer-encoding",
  "upgrade",
]);

/** They open the sandbox or the API: the code inside, which is anybody's, has no business with them. */
const SECRET_HEADERS: ReadonlySet<string> = new Set(["x-access-token", "e2b-traffic-access-token"]);
const ROUTING_PREFIX = "e2b-sandbox-";

/** What says where a request came from is ours to say. */
const ORIGIN_HEADERS: ReadonlySet<string> = new Set([
  "forwarded",
  "x-forwarded-for",
  "x-forwarded-host",
  "x-forwarded-proto",
]);

/** A server inside may have keys of its own under the same names; those that look like ours stay out. */
function isApiKey(name: string, value: string): boolean {
  if (name === "x-api-key") return value.trim().toLowerCase().startsWith("e2b_");
  return name === "authorization" && /^bearer\s+(?:e2b|hfm)_/i.test(value);
}

function listOf(value: string | undefined): string[] {
  return (value ?? "")
    .toLowerCase()
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "");
}

function* pairsOf(rawHeaders: readonly string[]): Generator<[name: string, lower: string, value: string]> {
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? "";
    yield [name, name.toLowerCase(), rawHeaders[index + 1] ?? ""];
  }
}

export interface ForwardedRequest {
  readonly rawHeaders: readonly string[];
  readonly headers: IncomingMessage["headers"];
  readonly remoteAddress: string | undefined;
  readonly encrypted: boolean;
  readonly port: number;
  readonly maskHost: string | undefined;
  /** The protocol asked for, if the connection shall become one of another kind. */
  readonly upgrade?: string | undefined;
}

/** As a flat list, in the order and the spelling of the client. */
export function requestHeadersFor(request: ForwardedRequest): string[] {
  const dropped = new Set(listOf(request.headers.connection));
  const out: string[] = [];
  const host = request.headers.host ?? "";
  for (const [name, lower, value] of pairsOf(request.rawHeaders)) {
    if (HOP_BY_HOP.has(lower) || SECRET_HEADERS.has(lower) || ORIGIN_HEADERS.has(lower)) continue;
    // Length and target of a message are not the connection's to drop.
    if (dropped.has(lower) && lower !== "content-length" && lower !== "host") continue;
    if (lower.startsWith(ROUTING_PREFIX) || isApiKey(lower, value)) continue;
    if (lower === "host") out.push(name, maskedHost(request) ?? value);
    else out.push(name, value);
  }
  out.push("X-Forwarded-For", request.remoteAddress ?? "unknown", "X-Forwarded-Host", host);
  out.push("X-Forwarded-Proto", request.encrypted ? "https" : "http");
  if (request.headers["transfer-encoding"] !== undefined) out.push("Transfer-Encoding", "chunked");
  if (listOf(String(request.headers.te ?? "")).includes("trailers")) out.push("TE", "trailers");
  if (request.upgrade === undefined) out.push("Connection", "close");
  else out.push("Connection", "Upgrade", "Upgrade", request.upgrade);
  return out;
}

/** Such as `localhost:${PORT}`. A host that could not stand in a header is no mask. */
function maskedHost({ maskHost, port }: ForwardedRequest): string | undefined {
  const host = maskHost?.replaceAll("$" + "{PORT}", String(port));
  return host !== undefined && /^[\x21-\x7e]{1,255}$/.test(host) ? host : undefined;
}

/** `keepUpgrade` for a 101, whose very point those headers are. */
export function responseHeadersFor(
  response: Pick<IncomingMessage, "rawHeaders" | "headers">,
  options: { readonly keepUpgrade?: boolean } = {},
): string[] {
  const dropped = new Set(listOf(response.headers.connection));
  const out: string[] = [];
  for (const [name, lower, value] of pairsOf(response.rawHeaders)) {
    if (options.keepUpgrade === true && (lower === "connection" || lower === "upgrade")) out.push(name, value);
    else if (!HOP_BY_HOP.has(lower) && (!dropped.has(lower) || lower === "content-length")) out.push(name, value);
  }
  return out;
}

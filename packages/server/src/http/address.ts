/** Whom a request is for: the API, or a port of a sandbox. Read from the host name, or from two headers where names do not work. */
import type { IncomingMessage } from "node:http";
import { isIP, isIPv6 } from "node:net";
import { parseSandboxId, type SandboxId } from "@holdfast/protocol";

export type Address =
  | { readonly plane: "control" }
  | { readonly plane: "sandbox"; readonly id: SandboxId; readonly port: number }
  | { readonly plane: "refused"; readonly status: 400; readonly message: "Invalid host" | "Invalid sandbox ID" };

const CONTROL: Address = { plane: "control" };
export const INVALID_HOST: Address = { plane: "refused", status: 400, message: "Invalid host" };
const INVALID_ID: Address = { plane: "refused", status: 400, message: "Invalid sandbox ID" };

const MAX_NAME_LENGTH = 253;

function parsePort(text: string): number | undefined {
  const port = /^[1-9][0-9]{0,4}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 65_535 ? port : undefined;
}

/** The name in a Host header: in lower case, without the port, the brackets of IPv6 and the dot of the root. */
export function parseHost(host: string): string | undefined {
  const [, literal, name, port] = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::([0-9]*))?$/i.exec(host) ?? [];
  if (port !== undefined && port !== "" && parsePort(port) === undefined) return undefined;
  if (literal !== undefined) return isIPv6(literal) ? literal.toLowerCase() : undefined;
  const plain = name?.toLowerCase().replace(/\.$/, "");
  if (plain === undefined || plain.length > MAX_NAME_LENGTH) return undefined;
  return /^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/.test(plain) ? plain : undefined;
}

function sandboxAddress(idText: string | undefined, portText: string | undefined): Address {
  const port = parsePort(portText ?? "");
  if (port === undefined) return INVALID_HOST;
  try {
    return { plane: "sandbox", id: parseSandboxId(idText), port };
  } catch {
    // What it would say about the id is for callers of the API; here the answer is a fixed one.
    return INVALID_ID;
  }
}

/** `3000-i8f…`: a port and a sandbox. Undefined if it does not look like one at all. */
function addressFromLabel(label: string): Address | undefined {
  const [, port, id] = /^([0-9]+)-(.*)$/.exec(label) ?? [];
  return port === undefined ? undefined : sandboxAddress(id, port);
}

/** Undefined if neither header is there. A header that comes twice is a list by now, and refused as such. */
function addressFromHeaders(headers: IncomingMessage["headers"]): Address | undefined {
  const id = headers["e2b-sandbox-id"];
  const port = headers["e2b-sandbox-port"];
  if (id === undefined && port === undefined) return undefined;
  if (id === undefined) return INVALID_ID;
  return sandboxAddress(String(id), port === undefined ? undefined : String(port));
}

/** The headers count only where a name cannot say it: else a page of one sandbox could speak for another. */
function honoursHeaders(name: string): boolean {
  return name === "localhost" || name.startsWith("sandbox.") || isIP(name) !== 0;
}

export function addressOf(
  request: Pick<IncomingMessage, "headers" | "rawHeaders">,
  options: { readonly domain: string | null },
): Address {
  const hosts = request.rawHeaders.filter((text, index) => index % 2 === 0 && text.toLowerCase() === "host");
  if (hosts.length !== 1) return INVALID_HOST;
  const name = parseHost(request.headers.host ?? "");
  if (name === undefined) return INVALID_HOST;

  if (honoursHeaders(name)) {
    const address = addressFromHeaders(request.headers);
    if (address !== undefined) return address;
    return name.startsWith("sandbox.") ? INVALID_HOST : CONTROL;
  }
  const domain = options.domain?.toLowerCase();
  const [label = "", ...rest] = name.split(".");
  if (domain === undefined) return (rest.length > 0 ? addressFromLabel(label) : undefined) ?? CONTROL;
  if (name === domain || name === `api.${domain}`) return CONTROL;
  return rest.join(".") === domain ? (addressFromLabel(label) ?? INVALID_HOST) : INVALID_HOST;
}

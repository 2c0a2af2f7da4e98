/** Who may see the metrics. */
import type { IncomingMessage } from "node:http";
import { BlockList, isIP } from "node:net";
import { HoldfastError } from "@holdfast/protocol";
import type { MetricsAccess } from "../config/metrics-access.js";
import { parseHost } from "../http/address.js";
import { OPERATOR } from "../http/authenticate.js";
import { isSameSecret } from "../http/same-secret.js";

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

/** Whoever adds one of these speaks for somebody else. */
const PROXY_HEADER = /^(?:forwarded|via|x-forwarded(?:-.*)?|x-real-ip|x-client-ip|true-client-ip|cf-connecting-ip)$/;
/** Only browsers send them, and on behalf of any page. Not `sec-fetch-mode`: programs with `fetch` send that as well. */
const BROWSER_HEADER = /^(?:origin|sec-fetch-site)$/;

type AskedBy = Pick<IncomingMessage, "headers"> & { readonly socket: { readonly remoteAddress?: string | undefined } };

function isLoopback(address: string | undefined): boolean {
  const kind = isIP(address ?? "");
  return kind !== 0 && LOOPBACK.check(address ?? "", kind === 4 ? "ipv4" : "ipv6");
}

/**
 * A page in a browser on this machine comes from loopback as well, perhaps under a name of its own that it lets lead here.
 * So it must be asked by an address, by `localhost` or by a name that is ours.
 */
export function isLocal(request: AskedBy, domain: string | null): boolean {
  if (!isLoopback(request.socket.remoteAddress)) return false;
  const names = Object.keys(request.headers);
  if (names.some((name) => PROXY_HEADER.test(name) || BROWSER_HEADER.test(name))) return false;
  const host = parseHost(request.headers.host ?? "");
  if (host === undefined) return false;
  return isIP(host) !== 0 || host === "localhost" || (domain !== null && [domain, `api.${domain}`].includes(host));
}

/** The same answer whatever was wrong. */
export function requireMetricsAccess(
  request: IncomingMessage,
  rules: { readonly access: MetricsAccess; readonly key: string; readonly domain: string | null },
): void {
  if (rules.access === "open" || OPERATOR in request.socket) return;
  if (rules.access === "local" && isLocal(request, rules.domain)) return;
  const given = /^Bearer (\S+)$/i.exec(request.headers.authorization ?? "")?.[1];
  if (given !== undefined && isSameSecret(given, rules.key)) return;
  throw new HoldfastError("unauthenticated", "the operator's key for metrics is needed", {
    hint: "Send the one in server/metrics.key, below the state directory, as Authorization: Bearer. API keys do not do.",
  });
}

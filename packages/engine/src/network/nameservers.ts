/** Who answers the sandboxes' questions: the host's own nameservers, unless HOLDFAST_NAMESERVERS names others. */
import { readFileSync } from "node:fs";
import { isIP } from "node:net";

export interface Nameserver {
  readonly address: string;
  readonly port: number;
}

const DNS_PORT = 53;
/** As many as the C library uses. */
const MAX_NAMESERVERS = 3;
const FRESH_MS = 5000;

/** `192.0.2.1`, `192.0.2.1:5353`, `2001:db8::1`, `[2001:db8::1]:5353`; undefined for anything else. */
export function parseNameserver(text: string): Nameserver | undefined {
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text);
  const address = match?.[1] ?? match?.[2] ?? text;
  const port = match?.[3] === undefined ? DNS_PORT : Number(match[3]);
  // A scope ("%eth0") is the host's business and is kept.
  return isIP(address.replace(/%.*$/, "")) !== 0 && port >= 1 && port <= 65535 ? { address, port } : undefined;
}

export function parseResolvConf(text: string): Nameserver[] {
  const servers = [...text.matchAll(/^nameserver[ \t]+(\S+)/gm)].flatMap(
    ([, address = ""]) => parseNameserver(address) ?? [],
  );
  return servers.slice(0, MAX_NAMESERVERS);
}

function readNameservers(): Nameserver[] {
  const chosen = process.env.HOLDFAST_NAMESERVERS?.split(/[\s,]+/).filter((text) => text !== "") ?? [];
  if (chosen.length > 0) return chosen.flatMap((text) => parseNameserver(text) ?? []).slice(0, MAX_NAMESERVERS);
  try {
    const servers = parseResolvConf(readFileSync("/etc/resolv.conf", "utf8"));
    if (servers.length > 0) return servers;
  } catch {
    // Without the file there is the default, as for every other program.
  }
  return [{ address: "127.0.0.1", port: DNS_PORT }];
}

let known: readonly Nameserver[] = [];
let readAtMs = Number.NEGATIVE_INFINITY;

export function hostNameservers(): readonly Nameserver[] {
  const now = performance.now();
  if (now - readAtMs > FRESH_MS) {
    known = readNameservers();
    readAtMs = now;
  }
  return known;
}

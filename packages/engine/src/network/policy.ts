/**
 * Which addresses a sandbox may reach. Pure.
 *
 * Of the rules that match, the most specific decides: the longest prefix, and of two alike the one that names a port. Of two
 * that are equally specific, the denial. What no rule matches is allowed, but for the addresses below, which lead back to
 * this host or to nobody in particular: these need a rule of their own that allows them, at least as specific.
 */
import { invalidArgument } from "@holdfast/protocol";
import type { NetworkSpec } from "../engine.js";
import { parseIpv4 } from "./ipv4.js";

const MAX_RULES = 1000;

interface AddressRule {
  readonly network: number;
  readonly prefixLength: number;
  readonly port: number | undefined;
}

/** This network, loopback, link-local (cloud metadata lives there), multicast and whatever is above it. */
const CLOSED_NETWORKS: readonly AddressRule[] = [
  { network: 0x00000000, prefixLength: 8, port: undefined },
  { network: 0x7f000000, prefixLength: 8, port: undefined },
  { network: 0xa9fe0000, prefixLength: 16, port: undefined },
  { network: 0xe0000000, prefixLength: 3, port: undefined },
];

export const ADDRESS_RULE = "an IPv4 address or range such as 10.1.2.3, 10.0.0.0/8 or 10.1.2.3:443";

const masked = (address: number, prefixLength: number): number =>
  prefixLength === 0 ? 0 : (address & (-1 << (32 - prefixLength))) >>> 0;

function readRule(entry: unknown): AddressRule | undefined {
  const match = typeof entry === "string" ? /^([0-9.]+)(?:\/(\d{1,2}))?(?::(\d{1,5}))?$/.exec(entry) : null;
  const address = match?.[1] === undefined ? undefined : parseIpv4(match[1]);
  const prefixLength = match?.[2] === undefined ? 32 : Number(match[2]);
  const port = match?.[3] === undefined ? undefined : Number(match[3]);
  if (address === undefined || prefixLength > 32 || (port !== undefined && (port < 1 || port > 65535)))
    return undefined;
  return { network: masked(address, prefixLength), prefixLength, port };
}

export const isAddressRule = (entry: unknown): boolean => readRule(entry) !== undefined;

function parseRule(entry: unknown, field: string): AddressRule {
  const rule = readRule(entry);
  if (rule === undefined) throw invalidArgument(field, entry, ADDRESS_RULE);
  return rule;
}

function parseRules(entries: unknown, field: string): AddressRule[] {
  if (!Array.isArray(entries)) throw invalidArgument(field, entries, "a list of addresses and ranges");
  if (entries.length > MAX_RULES) throw invalidArgument(field, `${entries.length} entries`, `at most ${MAX_RULES}`);
  return entries.map((entry, index) => parseRule(entry, `${field}[${index}]`));
}

/** How well a rule knows the target; undefined if it does not match. */
function specificity(rule: AddressRule, address: number, port: number): number | undefined {
  if (masked(address, rule.prefixLength) !== rule.network) return undefined;
  if (rule.port !== undefined && rule.port !== port) return undefined;
  return rule.prefixLength * 2 + (rule.port === undefined ? 0 : 1);
}

function mostSpecific(rules: readonly AddressRule[], address: number, port: number): number {
  return Math.max(-1, ...rules.map((rule) => specificity(rule, address, port) ?? -1));
}

export class NetworkPolicy {
  readonly #allow: readonly AddressRule[];
  readonly #deny: readonly AddressRule[];

  constructor(rules: { readonly allow: readonly string[]; readonly deny: readonly string[] }) {
    this.#allow = parseRules(rules.allow, "network.allow");
    this.#deny = parseRules(rules.deny, "network.deny");
  }

  /** `own`: the addresses of this host. */
  allows(address: number, port: number, own: ReadonlySet<number>): boolean {
    const allowed = mostSpecific(this.#allow, address, port);
    if (mostSpecific(this.#deny, address, port) >= Math.max(0, allowed)) return false;
    const closed: readonly AddressRule[] = own.has(address)
      ? [{ network: address, prefixLength: 32, port: undefined }]
      : CLOSED_NETWORKS;
    return mostSpecific(closed, address, port) <= allowed;
  }

  /** Of addresses that no rule can name, because they are no IPv4: what is said of all addresses holds for them, too. */
  allowsOthers(port: number): boolean {
    const ofAll = (rules: readonly AddressRule[]) =>
      mostSpecific(
        rules.filter(({ prefixLength }) => prefixLength === 0),
        0,
        port,
      );
    return ofAll(this.#deny) < Math.max(0, ofAll(this.#allow));
  }
}

/** What the caller asked for, checked and completed. */
export function resolveNetwork(network: NetworkSpec | undefined): NetworkSpec {
  switch (network?.kind) {
    case undefined:
    case "none":
      return { kind: "none" };
    case "egress": {
      const { allow = [], deny = [] } = network as Partial<typeof network>;
      new NetworkPolicy({ allow, deny });
      return { kind: "egress", allow: [...allow], deny: [...deny] };
    }
    default:
      throw invalidArgument("network.kind", (network as { kind: unknown }).kind, "none or egress");
  }
}

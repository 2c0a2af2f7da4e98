/** Which addresses keys may have the server speak to: as for build steps, and for both kinds of addresses. */
import { BlockList, isIP } from "node:net";
import { networkInterfaces } from "node:os";

interface Rule {
  readonly list: BlockList;
  readonly prefixLength: number;
  readonly port: number | undefined;
}

/** This machine, link-local (cloud metadata lives there), multicast, and whatever is above it. */
const CLOSED = [
  ...["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"],
  ...["::/128", "::1/128", "fe80::/10", "ff00::/8", "64:ff9b::/96"],
].map((text) => ruleOf(text));

function ruleOf(text: string): Rule {
  const [, address = "", length, port] =
    /^(.*?)(?:\/(\d+))?(?::(\d+))?$/.exec(isIP(text) === 6 ? `${text}/128` : text) ?? [];
  const family = isIP(address) === 6 ? "ipv6" : "ipv4";
  const prefixLength = length === undefined ? (family === "ipv6" ? 128 : 32) : Number(length);
  const list = new BlockList();
  list.addSubnet(address, prefixLength, family);
  // Nothing at all is nothing of the other kind, either.
  if (prefixLength === 0) list.addSubnet("::", 0, "ipv6");
  return { list, prefixLength, port: port === undefined ? undefined : Number(port) };
}

function covers({ list, port }: Rule, address: string, at: number): boolean {
  return (port === undefined || port === at) && list.check(address, isIP(address) === 6 ? "ipv6" : "ipv4");
}

function ownAddresses(): Rule[] {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return all.map(({ address }) => ruleOf(address.replace(/%.*$/, "")));
}

export class AddressRules {
  readonly #allow: readonly Rule[];
  readonly #deny: readonly Rule[];

  constructor(rules: { readonly allow: readonly string[]; readonly deny: readonly string[] }) {
    this.#allow = rules.allow.map(ruleOf);
    this.#deny = rules.deny.map(ruleOf);
  }

  /** What is closed needs a rule of its own that is at least as specific. */
  allows(address: string, port: number): boolean {
    const specificity = (rules: readonly Rule[]): number =>
      Math.max(-1, ...rules.filter((rule) => covers(rule, address, port)).map(({ prefixLength }) => prefixLength));
    const allowed = specificity(this.#allow);
    if (specificity(this.#deny) >= Math.max(0, allowed)) return false;
    return specificity([...CLOSED, ...ownAddresses()]) <= allowed;
  }
}

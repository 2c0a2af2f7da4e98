/** Which addresses of either kind may be spoken to under rules for IPv4. Those decide like a sandbox's own: see policy.ts. */
import { BlockList, isIP, SocketAddress } from "node:net";
import { networkInterfaces } from "node:os";
import { parseIpv4 } from "./ipv4.js";
import { ownAddresses } from "./own-addresses.js";
import { NetworkPolicy } from "./policy.js";

const IPV4_INSIDE = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/;

/** This machine, link-local, multicast, and IPv4 addresses behind a translator. */
const CLOSED = new BlockList();
for (const [network, prefixLength] of [
  ["::", 128],
  ["::1", 128],
  ["fe80::", 10],
  ["ff00::", 8],
  ["64:ff9b::", 96],
] as const) {
  CLOSED.addSubnet(network, prefixLength, "ipv6");
}

const withoutZone = (address: string): string => address.replace(/%.*$/, "");

function isOwnIpv6(address: string): boolean {
  const own = new BlockList();
  for (const each of Object.values(networkInterfaces()).flatMap((list) => list ?? [])) {
    if (each.family === "IPv6") own.addAddress(withoutZone(each.address), "ipv6");
  }
  return own.check(address, "ipv6");
}

export class AddressRules {
  readonly #policy: NetworkPolicy;

  constructor(rules: { readonly allow: readonly string[]; readonly deny: readonly string[] }) {
    this.#policy = new NetworkPolicy(rules);
  }

  allows(text: string, port: number): boolean {
    const given = withoutZone(text);
    if (isIP(given) === 0) return false;
    const address = isIP(given) === 6 ? new SocketAddress({ address: given, family: "ipv6" }).address : given;
    const ipv4 = parseIpv4(IPV4_INSIDE.exec(address)?.[1] ?? address);
    if (ipv4 !== undefined) return this.#policy.allows(ipv4, port, ownAddresses());
    return this.#policy.allowsOthers(port) && !CLOSED.check(address, "ipv6") && !isOwnIpv6(address);
  }
}

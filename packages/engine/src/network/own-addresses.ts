/** The addresses of this host's interfaces, but for loopback, which is closed as a whole. They come and go. */
import { networkInterfaces } from "node:os";
import { parseIpv4 } from "./ipv4.js";

const FRESH_MS = 1000;
const LOOPBACK_NETWORK = 127;

let known: ReadonlySet<number> = new Set();
let lookedAtMs = Number.NEGATIVE_INFINITY;

export function ownAddresses(): ReadonlySet<number> {
  const now = performance.now();
  if (now - lookedAtMs > FRESH_MS) {
    known = new Set(
      Object.values(networkInterfaces()).flatMap((list) =>
        (list ?? []).flatMap(({ address }) => {
          const number = parseIpv4(address);
          return number === undefined || number >>> 24 === LOOPBACK_NETWORK ? [] : [number];
        }),
      ),
    );
    lookedAtMs = now;
  }
  return known;
}

import { expect, it } from "vitest";
import { parseNameserver, parseResolvConf } from "./nameservers.js";

it.each([
  ["192.0.2.1", { address: "192.0.2.1", port: 53 }],
  ["192.0.2.1:5353", { address: "192.0.2.1", port: 5353 }],
  ["2001:db8::1", { address: "2001:db8::1", port: 53 }],
  ["[2001:db8::1]:5353", { address: "2001:db8::1", port: 5353 }],
  ["fe80::1%eth0", { address: "fe80::1%eth0", port: 53 }],
  ["example.com", undefined],
  ["192.0.2.1:0", undefined],
  ["192.0.2.1:99999", undefined],
  ["", undefined],
])("%j is understood", (text, expected) => {
  expect(parseNameserver(text)).toEqual(expected);
});

it("resolv.conf names up to three", () => {
  const text =
    "# nameserver 192.0.2.9\nsearch example.com\nnameserver 192.0.2.1\nnameserver\t::1\nnameserver nonsense\n";
  expect(parseResolvConf(text)).toEqual([
    { address: "192.0.2.1", port: 53 },
    { address: "::1", port: 53 },
  ]);
  expect(parseResolvConf("nameserver 192.0.2.1\n".repeat(5))).toHaveLength(3);
});

import { HoldfastError } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import { validate } from "../http/validate.js";
import { networkFromCreate, networkFromUpdate, networkSchema, networkUpdateSchema, shownNetwork } from "./network.js";

function parse(network: unknown, allowInternetAccess?: boolean) {
  return networkFromCreate(validate(networkSchema, network, "network"), allowInternetAccess);
}

describe("network settings", () => {
  it("are kept as they were given", () => {
    const network = {
      allowOut: ["8.8.8.8", "10.0.0.0/8", "2001:db8::/32", "example.com", "*.example.com"],
      denyOut: ["0.0.0.0/0"],
      allowPublicTraffic: false,
      maskRequestHost: `localhost:\${PORT}`,
      httpsPorts: [8443],
      rules: { "api.example.com": [{ transform: { headers: { Authorization: "Bearer x" } } }] },
    };
    expect(parse(network)).toEqual({ allowInternetAccess: null, allowPublicTraffic: false, settings: network });
  });

  it("allow public traffic unless they say otherwise", () => {
    expect(networkFromCreate(undefined, true)).toEqual({
      allowInternetAccess: true,
      allowPublicTraffic: true,
      settings: null,
    });
  });

  it("name a domain of a rule in lower case", () => {
    expect(parse({ rules: { "API.Example.com": [] } }).settings).toEqual({ rules: { "api.example.com": [] } });
  });

  it("need everything denied before a domain is allowed", () => {
    expect(() => parse({ allowOut: ["example.com"] })).toThrow(/^network\.denyOut: expected 0\.0\.0\.0\/0/);
    expect(() => parse({ allowOut: ["example.com"], denyOut: ["1.1.1.1"] })).toThrow(/example\.com/);
    expect(parse({ allowOut: ["example.com"] }, false).settings).toEqual({ allowOut: ["example.com"] });
  });

  it.each([
    [{ allowOut: "1.1.1.1" }, /^allowOut: /],
    [{ allowOut: ["1.2.3"] }, /^allowOut\[0\]: /],
    [{ allowOut: ["999.1.1.1"] }, /^allowOut\[0\]: /],
    [{ allowOut: ["10.0.0.0/33"] }, /^allowOut\[0\]: /],
    [{ allowOut: ["evil\0.example.com"] }, /^allowOut\[0\]: /],
    [{ allowOut: ["*"] }, /^allowOut\[0\]: /],
    [{ denyOut: ["1.1.1.1", "example.com"] }, /^denyOut\[1\]: /],
    [{ denyOut: Array.from({ length: 1001 }, () => "1.1.1.1") }, /^denyOut: /],
    [{ allowPublicTraffic: "yes" }, /^allowPublicTraffic: /],
    [{ maskRequestHost: "a b" }, /^maskRequestHost: /],
    [{ maskRequestHost: "a\r\nX: y" }, /^maskRequestHost: /],
    [{ httpsPorts: [0] }, /^httpsPorts\[0\]: /],
    [{ httpsPorts: [49983] }, /^httpsPorts\[0\]: /],
    [{ rules: { "*": [] } }, /^rules\.\*: /],
    [{ rules: { "a.b": [{ transform: { headers: { "a b": "c" } } }] } }, /^rules\.a\.b\[0\]\.transform\.headers/],
    [{ rules: { "a.b": [{ transform: { headers: { a: "b\nc" } } }] } }, /^rules\.a\.b\[0\]\.transform\.headers\.a: /],
    [{ rules: { "a.b": [{ redirect: true }] } }, /^rules\.a\.b\[0\]\.redirect: /],
    [{ egressProxy: { address: "proxy" } }, /^egressProxy\.address: /],
    [{ egressProxy: { address: "proxy:70000" } }, /^egressProxy\.address: /],
    [{ egressProxy: { address: "proxy:1", password: "x" } }, /^egressProxy\.username: /],
    [{ egressProxy: { address: "proxy:1", username: "x".repeat(256) } }, /^egressProxy\.username: /],
    [{ allowIn: [] }, /^allowIn: /],
  ])("refuse %j by name", (network, message) => {
    expect(() => parse(network)).toThrow(HoldfastError);
    expect(() => parse(network)).toThrow(message);
  });

  it("replace what goes out in an update, and leave what comes in", () => {
    const before = parse({ denyOut: ["1.1.1.1"], httpsPorts: [8443], allowPublicTraffic: false }, true);
    const update = validate(networkUpdateSchema, { allowOut: ["8.8.8.8"], egressProxy: null }, "body");
    expect(networkFromUpdate(before, update)).toEqual({
      allowInternetAccess: null,
      allowPublicTraffic: false,
      settings: { allowOut: ["8.8.8.8"], httpsPorts: [8443], allowPublicTraffic: false },
    });
  });

  it("are told back without the proxy's password", () => {
    const network = parse({ egressProxy: { address: "[::1]:1080", username: "u", password: "secret" } });
    expect(network.settings).toHaveProperty("egressProxy.password", "secret");
    expect(shownNetwork(network)).toEqual({
      egressProxy: { address: "[::1]:1080", username: "u" },
      allowPublicTraffic: true,
    });
  });
});

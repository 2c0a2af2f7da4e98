import { describe, expect, it } from "vitest";
import type { NetworkSpec } from "../engine.js";
import { formatIpv4, parseIpv4 } from "./ipv4.js";
import { NetworkPolicy, resolveNetwork } from "./policy.js";

const HOST = "172.20.0.5";
const own = new Set([parseIpv4(HOST) ?? 0]);

function allows(rules: { allow?: string[]; deny?: string[] }, target: string): boolean {
  const [address = "", port = "80"] = target.split(":");
  const policy = new NetworkPolicy({ allow: rules.allow ?? [], deny: rules.deny ?? [] });
  return policy.allows(parseIpv4(address) ?? 0, Number(port), own);
}

describe("a policy", () => {
  it.each([
    ["allows what no rule names", {}, "93.184.216.34", true],
    ["allows private addresses that no rule names", {}, "10.1.2.3", true],
    ["denies an address", { deny: ["10.1.2.3"] }, "10.1.2.3", false],
    ["denies a range", { deny: ["10.0.0.0/8"] }, "10.255.0.1", false],
    ["denies no other than the range", { deny: ["10.0.0.0/8"] }, "11.0.0.1", true],
    ["denies everything", { deny: ["0.0.0.0/0"] }, "93.184.216.34", false],
    ["lets the more specific rule win", { deny: ["0.0.0.0/0"], allow: ["10.0.0.0/8"] }, "10.0.0.1", true],
    ["lets the more specific denial win", { deny: ["10.1.0.0/16"], allow: ["10.0.0.0/8"] }, "10.1.0.1", false],
    ["lets the denial win among equals", { deny: ["10.0.0.0/8"], allow: ["10.0.0.0/8"] }, "10.0.0.1", false],
    ["takes bits beyond the prefix as unsaid", { deny: ["10.9.9.9/8"] }, "10.0.0.1", false],
    ["allows a port of a denied range", { deny: ["10.0.0.0/8"], allow: ["10.0.0.0/8:443"] }, "10.0.0.1:443", true],
    ["allows no other port of it", { deny: ["10.0.0.0/8"], allow: ["10.0.0.0/8:443"] }, "10.0.0.1:80", false],
    ["denies a port", { deny: ["0.0.0.0/0:25"] }, "93.184.216.34:25", false],
    ["knows ranges that are no whole bytes", { deny: ["192.168.4.0/22"] }, "192.168.7.255", false],
    ["knows where they end", { deny: ["192.168.4.0/22"] }, "192.168.8.0", true],
  ] as const)("%s", (_what, rules, target, expected) => {
    expect(allows(rules as { allow?: string[]; deny?: string[] }, target)).toBe(expected);
  });

  it.each([
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "224.0.0.1",
    "255.255.255.255",
    HOST,
  ])("keeps %s closed, whatever a wider rule allows", (target) => {
    expect(allows({}, target)).toBe(false);
    expect(allows({ allow: ["0.0.0.0/0"] }, target)).toBe(false);
    expect(allows({ allow: [target] }, target)).toBe(true);
    expect(allows({ allow: [`${target}:81`] }, target)).toBe(false);
    expect(allows({ allow: [`${target}:80`] }, target)).toBe(true);
    expect(allows({ allow: [target], deny: [target] }, target)).toBe(false);
  });

  it("opens a closed range by a rule for the whole of it", () => {
    expect(allows({ allow: ["127.0.0.0/8"] }, "127.0.0.1")).toBe(true);
    expect(allows({ allow: ["172.16.0.0/12"] }, HOST)).toBe(false);
  });
});

describe("a network spec", () => {
  it.each([
    "example.com",
    "*",
    "",
    "10.0.0",
    "10.0.0.0.0",
    "10.0.0.256",
    "10.0.0.1/33",
    "10.0.0.1/-1",
    "10.0.0.1:0",
    "10.0.0.1:65536",
    "10.0.0.1:",
    "010.0.0.1",
    "0x7f.0.0.1",
    "::1",
    "10.0.0.1 ",
    "10.0.0.1\n",
    "10.0.0.1/8/8",
    "٣.0.0.1",
    7,
    null,
    {},
  ])("refuses %j as a rule, by its place", (entry) => {
    const spec = { kind: "egress", allow: ["10.0.0.1", entry], deny: [] } as unknown as NetworkSpec;
    expect(() => resolveNetwork(spec)).toThrow(
      expect.objectContaining({ code: "invalid_argument", message: expect.stringContaining("network.allow[1]") }),
    );
  });

  it.each([
    [{ kind: "bridge" }],
    [{ kind: "egress", allow: "10.0.0.1", deny: [] }],
    [{ kind: "egress", allow: [], deny: 1 }],
  ])("refuses %j", (spec) => {
    expect(() => resolveNetwork(spec as unknown as NetworkSpec)).toThrow(
      expect.objectContaining({ code: "invalid_argument" }),
    );
  });

  it("refuses rules without end", () => {
    const deny = Array.from({ length: 1001 }, () => "10.0.0.1");
    expect(() => resolveNetwork({ kind: "egress", allow: [], deny })).toThrow("at most 1000");
  });

  it("is none unless asked for", () => {
    expect(resolveNetwork(undefined)).toEqual({ kind: "none" });
    expect(resolveNetwork({ kind: "egress" } as NetworkSpec)).toEqual({ kind: "egress", allow: [], deny: [] });
  });
});

it("addresses come back as they went", () => {
  for (const text of ["0.0.0.0", "255.255.255.255", "192.0.2.1"]) expect(formatIpv4(parseIpv4(text) ?? -1)).toBe(text);
});

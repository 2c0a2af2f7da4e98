import { networkInterfaces } from "node:os";
import { describe, expect, test } from "vitest";
import { AddressRules } from "./address-rules.js";

const allows = (address: string, rules: { allow?: string[]; deny?: string[] } = {}, port = 443) =>
  new AddressRules({ allow: rules.allow ?? [], deny: rules.deny ?? [] }).allows(address, port);

describe("an address", () => {
  test.each(["93.184.216.34", "10.1.2.3", "2606:2800:220:1::1", "::ffff:93.184.216.34"])("%s is reached", (address) => {
    expect(allows(address)).toBe(true);
  });

  test.each([
    ...["127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "224.0.0.1", "255.255.255.255"],
    ...["::", "::1", "fe80::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::7f00:1"],
    ...Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map(({ address }) => address)),
  ])("%s is not", (address) => {
    expect(allows(address)).toBe(false);
    expect(allows(address, { allow: ["0.0.0.0/0"] })).toBe(false);
  });

  test("that is closed is opened by a rule as specific, for its port alone if it names one", () => {
    expect(allows("127.0.0.1", { allow: ["127.0.0.1"] })).toBe(true);
    expect(allows("127.0.0.1", { allow: ["127.0.0.1:5000"] }, 5000)).toBe(true);
    expect(allows("127.0.0.1", { allow: ["127.0.0.1:5000"] }, 443)).toBe(false);
    expect(allows("127.0.0.2", { allow: ["127.0.0.1"] })).toBe(false);
    expect(allows("127.0.0.2", { allow: ["127.0.0.0/8"] })).toBe(true);
    expect(allows("::ffff:7f00:1", { allow: ["127.0.0.1:5000"] }, 5000)).toBe(true);
  });

  test("that is denied is not reached, unless a rule that is more specific allows it", () => {
    expect(allows("10.1.2.3", { deny: ["10.0.0.0/8"] })).toBe(false);
    expect(allows("10.1.2.3", { deny: ["10.0.0.0/8"], allow: ["10.1.0.0/16"] })).toBe(true);
    expect(allows("10.1.2.3", { deny: ["10.1.2.3"], allow: ["10.1.2.3"] })).toBe(false);
    expect(allows("93.184.216.34", { deny: ["0.0.0.0/0"] })).toBe(false);
    expect(allows("::ffff:10.1.2.3", { deny: ["10.0.0.0/8"] })).toBe(false);
  });

  test("of a port alone is more specific than the same without", () => {
    const rules = { deny: ["10.0.0.0/8"], allow: ["10.0.0.0/8:443"] };
    expect(allows("10.1.2.3", rules, 443)).toBe(true);
    expect(allows("10.1.2.3", rules, 80)).toBe(false);
  });

  test("that no rule can name is denied and allowed with all the others, port by port", () => {
    const address = "2606:2800:220:1::1";
    expect(allows(address, { deny: ["0.0.0.0/0"] })).toBe(false);
    expect(allows(address, { deny: ["0.0.0.0/0"], allow: ["10.0.0.0/8"] })).toBe(false);
    expect(allows(address, { deny: ["0.0.0.0/0"], allow: ["0.0.0.0/0:443"] }, 443)).toBe(true);
    expect(allows(address, { deny: ["0.0.0.0/0"], allow: ["0.0.0.0/0:443"] }, 80)).toBe(false);
    expect(allows(address, { deny: ["0.0.0.0/0:25"] }, 25)).toBe(false);
    expect(allows(address, { deny: ["10.0.0.0/8"] })).toBe(true);
    expect(allows("fe80::1", { allow: ["0.0.0.0/0:443"] }, 443)).toBe(false);
  });

  test.each(["", "localhost", "127.1", "0x7f000001", "127.0.0.1:80", "[::1]", "::1%"])("such as %j is none", (text) => {
    expect(allows(text)).toBe(false);
  });
});

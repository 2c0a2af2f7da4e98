import { describe, expect, test } from "vitest";
import { addressOf, parseHost } from "./address.js";

const ID = "i0123456789abcdefghij";

function request(...pairs: readonly (readonly [string, string])[]) {
  const headers: Record<string, string> = {};
  for (const [name, value] of pairs) {
    const key = name.toLowerCase();
    // As Node does it: the first Host stands, other headers become a list.
    if (headers[key] === undefined) headers[key] = value;
    else if (key !== "host") headers[key] += `, ${value}`;
  }
  return { headers, rawHeaders: pairs.flat() };
}

const domain = "box.example";
const invalidHost = { plane: "refused", status: 400, message: "Invalid host" };
const invalidId = { plane: "refused", status: 400, message: "Invalid sandbox ID" };
const envd = { plane: "sandbox", id: ID, port: 49983 };

describe("parseHost", () => {
  test.each([
    ["box.example", "box.example"],
    ["BOX.Example:8443", "box.example"],
    ["box.example.", "box.example"],
    ["box.example.:443", "box.example"],
    ["127.0.0.1:3000", "127.0.0.1"],
    ["[::1]:3000", "::1"],
    ["[::FFFF:127.0.0.1]", "::ffff:127.0.0.1"],
    ["localhost:", "localhost"],
  ])("%s is %s", (host, name) => {
    expect(parseHost(host)).toBe(name);
  });

  test.each([
    "",
    ":80",
    ".",
    "a..b",
    "..",
    "a b",
    "a,b",
    "a/b",
    "a@b",
    "a\0.b",
    "box.example:0",
    "box.example:70000",
    "box.example:80:80",
    "box.example:x",
    "::1",
    "[::1",
    "[::1]x",
    "[fe80::1%eth0]",
    "[127.0.0.1]",
    "é.example",
    "a".repeat(254),
  ])("%j is none", (host) => {
    expect(parseHost(host)).toBeUndefined();
  });
});

describe("addressOf with a domain", () => {
  test.each(["box.example", "api.box.example", "API.Box.Example:443", "localhost", "10.1.2.3:80", "[::1]:80"])(
    "%s is the API",
    (host) => {
      expect(addressOf(request(["Host", host]), { domain })).toEqual({ plane: "control" });
    },
  );

  test.each([`49983-${ID}.box.example`, `49983-${ID.toUpperCase()}.BOX.example.:8443`])("%s is envd", (host) => {
    expect(addressOf(request(["Host", host]), { domain })).toEqual(envd);
  });

  test.each([
    "example.com",
    "xbox.example",
    "box.example.evil.com",
    "www.box.example",
    `49983-${ID}.evil.com`,
    `a.49983-${ID}.box.example`,
    `0-${ID}.box.example`,
    `65536-${ID}.box.example`,
    `080-${ID}.box.example`,
    `-${ID}.box.example`,
    `${ID}.box.example`,
    "sandbox.box.example",
  ])("%s is an invalid host", (host) => {
    expect(addressOf(request(["Host", host]), { domain })).toEqual(invalidHost);
  });

  test.each(["80-.box.example", "80-a-b.box.example", "80-a_b.box.example", `80-${"a".repeat(33)}.box.example`])(
    "%s has an invalid id",
    (host) => {
      expect(addressOf(request(["Host", host]), { domain })).toEqual(invalidId);
    },
  );
});

describe("addressOf by headers", () => {
  const headers = [
    ["E2b-Sandbox-Id", ID],
    ["E2b-Sandbox-Port", "49983"],
  ] as const;

  test.each(["localhost:3000", "127.0.0.1", "[::1]:3000", "sandbox.box.example", "sandbox.e2b.app"])(
    "%s honours them",
    (host) => {
      expect(addressOf(request(["Host", host], ...headers), { domain })).toEqual(envd);
    },
  );

  test("a name does not", () => {
    expect(addressOf(request(["Host", "box.example"], ...headers), { domain })).toEqual({ plane: "control" });
    expect(addressOf(request(["Host", "example.com"], ...headers), { domain })).toEqual(invalidHost);
    expect(addressOf(request(["Host", "80-iother.box.example"], ...headers), { domain })).toEqual({
      plane: "sandbox",
      id: "iother",
      port: 80,
    });
  });

  test("bad ones are refused", () => {
    const at = (...pairs: [string, string][]) => addressOf(request(["Host", "localhost"], ...pairs), { domain: null });
    expect(at(["E2b-Sandbox-Id", "../x"], ["E2b-Sandbox-Port", "80"])).toEqual(invalidId);
    expect(at(["E2b-Sandbox-Id", ID])).toEqual(invalidHost);
    expect(at(["E2b-Sandbox-Id", ID], ["E2b-Sandbox-Port", "99999"])).toEqual(invalidHost);
    expect(at(["E2b-Sandbox-Port", "80"])).toEqual(invalidId);
    expect(at(["E2b-Sandbox-Id", ID], ["E2b-Sandbox-Id", "x"], ["E2b-Sandbox-Port", "80"])).toEqual(invalidId);
  });
});

describe("addressOf without a domain", () => {
  test("any name is the API, unless it begins with a port and an id", () => {
    const at = (host: string) => addressOf(request(["Host", host]), { domain: null });
    expect(at("my-server.lan")).toEqual({ plane: "control" });
    expect(at("my-server")).toEqual({ plane: "control" });
    expect(at(`49983-${ID}.anything.example`)).toEqual(envd);
    expect(at("80-a-b.example")).toEqual(invalidId);
  });
});

test("no Host and two Hosts are refused", () => {
  expect(addressOf(request(), { domain })).toEqual(invalidHost);
  expect(addressOf(request(["Host", "box.example"], ["host", "box.example"]), { domain })).toEqual(invalidHost);
});

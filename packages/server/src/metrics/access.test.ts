import type { IncomingMessage } from "node:http";
import { HoldfastError } from "@holdfast/protocol";
import { describe, expect, test } from "vitest";
import { OPERATOR } from "../http/authenticate.js";
import { isLocal, requireMetricsAccess } from "./access.js";

const KEY = `hfm_${"a".repeat(40)}`;

function request(options: {
  readonly from?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly operator?: boolean;
}): IncomingMessage {
  const socket = {
    remoteAddress: options.from ?? "127.0.0.1",
    ...(options.operator === true ? { [OPERATOR]: true } : {}),
  };
  return { headers: { host: "127.0.0.1:3000", ...options.headers }, socket } as unknown as IncomingMessage;
}

describe("whoever asks from this machine", () => {
  test.each(["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])("is at %s", (from) => {
    expect(isLocal(request({ from }), null)).toBe(true);
  });

  test.each(["10.0.0.1", "::ffff:10.0.0.1", "fe80::1", "128.0.0.1", "", "127.0.0.1.evil"])("is not at %j", (from) => {
    expect(isLocal(request({ from }), null)).toBe(false);
  });

  test.each([
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded",
    "x-real-ip",
  ])("does not say %s", (name) => {
    expect(isLocal(request({ headers: { [name]: "" } }), null)).toBe(false);
  });

  test.each(["origin", "sec-fetch-site"])("is no page of a browser, which says %s", (name) => {
    expect(isLocal(request({ headers: { [name]: "null" } }), null)).toBe(false);
  });

  test.each(["localhost:3000", "127.0.0.1", "[::1]:3000", "box.example", "api.box.example:443"])(
    "asks for %s",
    (host) => {
      expect(isLocal(request({ headers: { host } }), "box.example")).toBe(true);
    },
  );

  test.each(["evil.example", "box.example.evil", "x.box.example", "", "a b"])(
    "does not ask for %j, which anybody could let lead here",
    (host) => {
      expect(isLocal(request({ headers: { host } }), "box.example")).toBe(false);
      expect(isLocal(request({ headers: { host } }), null)).toBe(false);
    },
  );
});

describe("the metrics", () => {
  const refusal = (access: "local" | "key" | "open", from: Parameters<typeof request>[0]): unknown => {
    try {
      requireMetricsAccess(request(from), { access, key: KEY, domain: null });
      return undefined;
    } catch (error) {
      return HoldfastError.from(error).code;
    }
  };
  const far = "10.0.0.1";

  test("are local: this machine, the operator's socket, or the key", () => {
    expect(refusal("local", {})).toBeUndefined();
    expect(refusal("local", { from: far })).toBe("unauthenticated");
    expect(refusal("local", { from: far, operator: true })).toBeUndefined();
    expect(refusal("local", { from: far, headers: { authorization: `Bearer ${KEY}` } })).toBeUndefined();
    expect(refusal("local", { headers: { via: "1.1 x", authorization: `bearer ${KEY}` } })).toBeUndefined();
  });

  test("are behind the key, for this machine as well", () => {
    expect(refusal("key", {})).toBe("unauthenticated");
    expect(refusal("key", { operator: true })).toBeUndefined();
    expect(refusal("key", { headers: { authorization: `Bearer ${KEY}` } })).toBeUndefined();
  });

  test.each([
    `Basic ${KEY}`,
    `Bearer ${KEY}x`,
    `Bearer ${KEY.slice(0, -1)}`,
    "Bearer ",
    "Bearer",
    KEY,
    `Bearer e2b_${"a".repeat(40)}`,
  ])("are not for %j", (authorization) => {
    expect(refusal("key", { headers: { authorization } })).toBe("unauthenticated");
  });

  test("are open to all if the operator says so", () => {
    expect(refusal("open", { from: far, headers: { via: "1.1 x", origin: "https://evil.example" } })).toBeUndefined();
  });
});

import { describe, expect, test } from "vitest";
import { acceptsIdentity, chooseCoding } from "./accept-encoding.js";

describe("chooseCoding", () => {
  test.each([
    [undefined, "identity"],
    ["", "identity"],
    ["gzip", "gzip"],
    ["GZIP;q=0.5", "gzip"],
    ["gzip, deflate", "identity"],
    ["gzip, deflate, br, zstd", "identity"],
    ["gzip, br;q=0", "gzip"],
    ["gzip;q=1.0, identity;q=0.5", "gzip"],
    ["gzip;q=0.5, identity", "identity"],
    ["gzip, deflate, identity;q=0", "gzip"],
    ["gzip, *;q=0", "gzip"],
    ["*", "identity"],
    ["gzip;q=0", "identity"],
    ["deflate", "identity"],
    ["identity;q=0", undefined],
    ["*;q=0", undefined],
    ["br, identity;q=0", undefined],
    ["gzip;q=x", "identity"],
  ])("of %j is %j", (header, coding) => {
    expect(chooseCoding(header)).toBe(coding);
  });
});

test.each([
  [undefined, true],
  ["gzip", true],
  ["identity;q=0", false],
  ["*;q=0", false],
  ["*;q=0, identity", true],
])("%j accepts the plain form: %j", (header, accepts) => {
  expect(acceptsIdentity(header)).toBe(accepts);
});

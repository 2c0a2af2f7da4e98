import { expect, test } from "vitest";
import { signatureOf } from "./access.js";

test("a signature is what SDKs make of the same facts", () => {
  const facts = { path: "/tmp/a", operation: "read", username: "", token: "secret" } as const;
  expect(signatureOf(facts)).toBe("v1_7ByvmOfOWTwBS4buCLxzDqMIF4igSEirO15y8a94ZEk");
  expect(signatureOf({ ...facts, expiration: 1 })).toBe("v1_qjITowdzJcvvXPI3xD4GQEd6htHLHEX6E5bXc2X1rrg");
});

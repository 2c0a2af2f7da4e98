import { describe, expect, test } from "vitest";
import { RegistryClient } from "./http.js";
import { parseRetryAfterMs } from "./retries.js";

describe("where a registry sends us", () => {
  const from = new URL("https://registry.example/v2/app/blobs/uploads/");

  test.each([
    ["/v2/app/blobs/uploads/1?a=b", "https://registry.example/v2/app/blobs/uploads/1?a=b"],
    ["2?x=%20+", "https://registry.example/v2/app/blobs/uploads/2?x=%20+"],
    ["https://cdn.example/blob", "https://cdn.example/blob"],
  ])("%s is followed", async (location, url) => {
    const client = await RegistryClient.open("registry.example");
    expect(client.resolve(location, from, "reading").href).toBe(url);
  });

  test.each([
    "http://registry.example/v2/",
    "https://user:pw@registry.example/",
    "file:///etc/passwd",
    "https://localhost/",
    "https://127.1.2.3/",
    "https://2130706433/",
    "https://[::1]/",
    "https://",
    "x".repeat(20_000),
  ])("%s is refused", async (location) => {
    const client = await RegistryClient.open("registry.example");
    expect(() => client.resolve(location, from, "reading")).toThrow(/elsewhere/);
  });

  test("may be this machine if it is this machine", async () => {
    const client = await RegistryClient.open("localhost:5000");
    const url = client.resolve("http://127.0.0.1:80/x", new URL("http://localhost:5000/"), "reading");
    expect(url.href).toBe("http://127.0.0.1/x");
  });
});

test.each([
  ["7", 7000],
  ["0", 0],
  ["Thu, 01 Jan 1970 00:01:00 GMT", 59_000],
  ["Thu, 01 Jan 1970 00:00:00 GMT", 0],
  ["soon", undefined],
  ["-1", undefined],
  [undefined, undefined],
])("Retry-After %s is %s ms", (header, ms) => {
  expect(parseRetryAfterMs(header, 1000)).toBe(ms);
});

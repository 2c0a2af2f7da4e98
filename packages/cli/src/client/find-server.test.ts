import { expect, test } from "vitest";
import { checkSocket, findServer } from "./find-server.js";

test("without anything it is the server of this machine", () => {
  expect(findServer({}, {})).toEqual({ kind: "socket", path: "/var/lib/holdfast/server/holdfast.sock" });
  expect(findServer({}, { HOLDFAST_STATE_DIR: "/s", HOLDFAST_URL: "" })).toEqual({
    kind: "socket",
    path: "/s/server/holdfast.sock",
  });
});

test("flags win over variables", () => {
  expect(
    findServer({ url: "https://a.test/", apiKey: "k1" }, { HOLDFAST_URL: "http://b", HOLDFAST_API_KEY: "k2" }),
  ).toEqual({ kind: "url", url: "https://a.test", apiKey: "k1" });
  expect(findServer({ stateDir: "/s" }, { HOLDFAST_API_KEY: "k2" })).toMatchObject({ kind: "socket" });
});

test("a key alone is for the default address", () => {
  expect(findServer({}, { HOLDFAST_API_KEY: "k" })).toEqual({ kind: "url", url: "http://127.0.0.1:3000", apiKey: "k" });
});

test("an address without a key is refused, and says where keys come from", () => {
  expect(() => findServer({ url: "http://a" }, {})).toThrow("--url is given, but no API key");
  expect(() => findServer({}, { HOLDFAST_URL: "http://a" })).toThrow("HOLDFAST_URL is given, but no API key");
});

test("an address that is none is refused by its flag", () => {
  for (const url of ["localhost:3000", "ftp://a", "//a"]) {
    expect(() => findServer({ url, apiKey: "k" }, {})).toThrow(/^--url: expected an address/);
  }
});

test("a socket that is not there means no server", () => {
  expect(() => checkSocket("/nonexistent/holdfast.sock")).toThrow("no server answers at /nonexistent/holdfast.sock");
});

import { expect, test } from "vitest";
import { wantsPage } from "./refusal.js";

const FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";

test.each([
  [{ accept: "text/html,application/xhtml+xml" }, true],
  [{ "user-agent": FIREFOX, accept: "*/*" }, true],
  [{ "user-agent": FIREFOX }, true],
  [{ "user-agent": FIREFOX, accept: "application/json, text/plain, */*" }, false],
  [{ "user-agent": FIREFOX, accept: "*/*", "x-access-token": "of the SDK" }, false],
  [{ "user-agent": "node", accept: "*/*" }, false],
  [{ "user-agent": "python-httpx/0.28 (not Mozilla/5.0)" }, false],
  [{}, false],
])("a page is for browsers: %j", (headers, expected) => {
  expect(wantsPage({ method: "GET", headers })).toBe(expected);
});

test("what sends something is no browser that shows a page", () => {
  expect(wantsPage({ method: "POST", headers: { "user-agent": FIREFOX, accept: "*/*" } })).toBe(false);
});

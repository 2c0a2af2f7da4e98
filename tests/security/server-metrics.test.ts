/** The metrics tell what everybody does: they are the operator's, and whoever speaks for others is not the operator. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { exchange, type HeaderList } from "../helpers/raw-http.js";
import { TEST_DOMAIN, useServer } from "../helpers/use-server.js";

const server = useServer({ args: ["--domain", TEST_DOMAIN] });
const OWN: HeaderList = [["Host", TEST_DOMAIN]];
const ask = (headers: HeaderList, method = "GET") => exchange(server.port, { method, target: "/metrics", headers });

const FOREIGN: HeaderList = [
  ["Forwarded", "for=10.0.0.1"],
  ["X-Forwarded-For", "127.0.0.1"],
  ["X-Forwarded-Host", TEST_DOMAIN],
  ["X-Forwarded-Anything", ""],
  ["X-Real-IP", "127.0.0.1"],
  ["Via", "1.1 proxy"],
  ["Origin", "https://page.example"],
  ["Origin", "null"],
  ["Sec-Fetch-Site", "same-origin"],
];

test("this machine sees them, by its addresses and the server's names", async () => {
  for (const host of [TEST_DOMAIN, `api.${TEST_DOMAIN}`, "localhost", "127.0.0.1", "[::1]"]) {
    const answer = await ask([["Host", host]]);
    expect([answer.status, answer.text.includes("holdfast_sandboxes")], host).toEqual([200, true]);
  }
});

test("nothing can be done to them", async () => {
  for (const method of ["POST", "PUT", "DELETE", "PATCH"]) expect((await ask(OWN, method)).status, method).toBe(401);
});

test.each(FOREIGN)("%s: %s needs the operator's key, and no API key is that", async (...header) => {
  const key = readFileSync(join(server.stateDirectory, "server", "metrics.key"), "utf8").trim();
  const wrong: readonly HeaderList[] = [
    [],
    [["X-API-Key", server.apiKey]],
    [["Authorization", `Bearer ${server.apiKey}`]],
    [["Authorization", `Bearer hfm_${"0".repeat(40)}`]],
    [["Authorization", `Bearer ${key}x`]],
    [["Authorization", `Bearer ${"x".repeat(10_000)}`]],
    [["X-API-Key", key]],
  ];
  for (const credential of wrong) {
    const answer = await ask([...OWN, header, ...credential]);
    expect([answer.status, answer.text.includes("holdfast_")]).toEqual([401, false]);
  }
  expect((await ask([...OWN, header, ["Authorization", `Bearer ${key}`]])).status).toBe(200);
});

test("a name that somebody else lets lead here is not ours", async () => {
  const names = ["evil.example", `x.${TEST_DOMAIN}`, `${TEST_DOMAIN}.evil.example`, "a b"];
  for (const name of names) {
    const answer = await ask([["Host", name]]);
    expect(answer.status, name).toBeGreaterThanOrEqual(400);
    expect(answer.text, name).not.toContain("holdfast_");
  }
});

test("a sandbox's address does not lead to them", async () => {
  const id = "i0123456789abcdefghij";
  const byName = await ask([["Host", `8000-${id}.${TEST_DOMAIN}`]]);
  const byHeader = await ask([
    ["Host", "localhost"],
    ["E2b-Sandbox-Id", id],
    ["E2b-Sandbox-Port", "8000"],
  ]);
  expect([byName.status, byHeader.status]).toEqual([502, 502]);
});

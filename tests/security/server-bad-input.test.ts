/** Requests that make no sense, to every route: each is refused in words, and none of them has an effect. */
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import type { RawRequest } from "../helpers/raw-http.js";
import { useServer } from "../helpers/use-server.js";
import {
  type Client,
  createClient,
  expectWell,
  faultOf,
  forEachOf,
  JSON_TYPE,
  type TestSandbox,
} from "./server-client.js";
import { type Route, registeredRoutes, routes } from "./server-routes.js";
import { rpcCases, rpcs } from "./server-rpcs.js";
import {
  fill,
  objections,
  type Send,
  type Wrong,
  wrongBodies,
  wrongParameters,
  wrongQueries,
} from "./server-wrongs.js";

const server = useServer({ args: ["--key-requests-per-second", "none", "--sandbox-disk-mb", "64"] });
let client: Client;
let sandbox: TestSandbox;
let pid = 0;
let before: string;

/** What a bad request must not have changed. */
async function stateOf(): Promise<string> {
  const [e2b, own] = await Promise.all([
    client.control({ target: `/sandboxes/${sandbox.id}` }),
    client.control({ target: `/v1/sandboxes/${sandbox.id}` }),
  ]);
  return `${e2b.text}\n${own.text}`;
}

beforeAll(async () => {
  pid = server.pid;
  client = createClient(server, server.apiKey);
  sandbox = await client.create();
  // Something for the routes of commands to be about. It ignores signals that ask it to end.
  await client.control({
    method: "POST",
    target: `/v1/sandboxes/${sandbox.id}/commands`,
    headers: [JSON_TYPE],
    body: JSON.stringify({ argv: ["/bin/bash", "-c", "trap '' TERM; while :; do sleep 60; done"], stdin: "open" }),
  });
  before = await stateOf();
}, 60_000);

afterEach(async () => {
  await expectWell(server, pid);
});

test("the table has every route that is registered", () => {
  const registered = registeredRoutes();
  const known = (list: readonly Route[]) => list.map(({ route }) => route);
  expect(registered.control.length).toBeGreaterThan(40);
  expect(registered.control.filter((route) => ![...known(routes.e2b), ...known(routes.v1)].includes(route))).toEqual(
    [],
  );
  expect(registered.envd.filter((route) => !known(routes.envd).includes(route))).toEqual([]);
  expect(rpcs.map(({ path }) => path).sort()).toEqual(Object.keys(rpcCases).sort());
  expect(routes.missing.length).toBeGreaterThan(5);
});

describe.each(["e2b", "v1"] as const)("the API (%s)", (plane) => {
  const send: Send = (request) => client.control(request);
  const all = (list: (route: Route, id: string) => Wrong[]) => async () => {
    const found: string[] = [];
    for (const route of routes[plane]) found.push(...(await objections(route.route, list(route, sandbox.id), send)));
    expect(found).toEqual([]);
  };

  test("refuses wrong bodies and names the field", all(wrongBodies));
  test("refuses wrong queries and names the parameter", all(wrongQueries));
  test("refuses ids that are none", all(wrongParameters));

  test("knows no other method", async () => {
    const found: string[] = [];
    const known = [...routes[plane].map(({ route }) => route), ...routes.missing];
    const paths = [...new Set(routes[plane].map(({ route }) => route.split(" ")[1] ?? ""))].filter(
      (path) => path !== "/health",
    );
    const wrongs = paths.flatMap((path) =>
      ["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "PURGE", "M-SEARCH"]
        .filter((method) => !known.includes(`${method} ${path}`))
        // A sandbox's metrics are also what the path of a sandbox of that name would be.
        .filter((method) => !(path === "/sandboxes/metrics" && known.includes(`${method} /sandboxes/:sandboxID`)))
        .map((method): Wrong => ({ about: `${method} ${path}`, request: { method, target: fill(path, sandbox.id) } })),
    );
    found.push(...(await objections(plane, wrongs, send)));
    expect(found).toEqual([]);
  });

  test("is as it was after all that", async () => {
    expect(await stateOf()).toBe(before);
  });
});

describe("the API", () => {
  test("says what is not implemented, whatever comes with it", async () => {
    const found: string[] = [];
    await forEachOf(routes.missing, async (route) => {
      const [method = "", path = ""] = route.split(" ");
      for (const body of [undefined, "nonsense", Buffer.from([0xff])]) {
        for (const type of ["application/json", "text/plain"]) {
          const answer = await client.control({
            method,
            target: fill(path, sandbox.id),
            ...(body === undefined ? {} : { body, headers: [["Content-Type", type]] }),
          });
          if (answer.status !== 501 || faultOf(answer)?.code !== 501)
            found.push(`${route}: ${answer.status} ${answer.text}`);
        }
      }
    });
    expect(found).toEqual([]);
  });

  test("refuses paths that are none", async () => {
    const targets = [
      "/%",
      "/%zz",
      "/%ff%fe",
      "/v1/%zz",
      "/\xff",
      "//",
      "/..",
      "/../../etc/passwd",
      "/%2e%2e/%2e%2e/etc/passwd",
      "/.unreadable",
      "/sandboxes/",
      "/v1",
      "/v1/",
      "/v2",
      `/${"a/".repeat(5000)}`,
      "/;",
      "/sandboxes%2f",
      "*",
      "/v1/sandboxes/%2e%2e",
    ];
    const wrongs = targets.map((target): Wrong => ({ about: target.slice(0, 80), request: { target } }));
    expect(await objections("GET", wrongs, (request) => client.control(request))).toEqual([]);
  });

  test("refuses wrong headers", async () => {
    const create = (headers: RawRequest["headers"]): RawRequest => ({
      method: "POST",
      target: "/v2/sandboxes",
      headers: [JSON_TYPE, ...(headers ?? [])],
      body: '{"templateID":"base"}',
    });
    const wrongs: Wrong[] = [
      ...["", "a".repeat(256), "\xff", "a\tb"].map((token) => ({
        about: `Idempotency-Key: ${token}`,
        names: "Idempotency-Key",
        request: create([["Idempotency-Key", token]]),
      })),
      {
        about: "Last-Event-ID",
        names: "Last-Event-ID",
        request: { target: "/v1/events?follow=0", headers: [["Last-Event-ID", "x"]] },
      },
    ];
    expect(await objections("headers", wrongs, (request) => client.control(request))).toEqual([]);
  });
});

test("the server has logged no fault of its own", () => {
  const faults = server.log.split("\n").filter((line) => /"level":(50|60)/.test(line));
  expect(faults).toEqual([]);
});

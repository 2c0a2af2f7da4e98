import { HoldfastError } from "@holdfast/protocol";
import { type FastifyInstance, fastify, type InjectOptions } from "fastify";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ServerParts } from "../parts.js";
import type { Sandboxes } from "../sandboxes/types.js";
import { v1Routes } from "./routes.js";

/** What a request that should have been refused would reach. */
const unreachable = new Proxy({} as Sandboxes, {
  get: (_target, name) => () => {
    throw new HoldfastError("sandbox_not_found", `reached ${String(name)}`);
  },
});

let app: FastifyInstance;

beforeAll(async () => {
  app = fastify();
  app.decorateRequest("caller");
  app.addHook("onRequest", async (request) => {
    request.caller = { kind: "operator" };
  });
  const parts = { sandboxes: unreachable, log: pino({ level: "silent" }) } as unknown as ServerParts;
  await app.register(v1Routes(parts), { prefix: "/v1" });
});

afterAll(() => app.close());

async function ask(method: InjectOptions["method"], url: string, body?: unknown) {
  const response = await app.inject({
    method: method as "GET",
    url: `/v1${url}`,
    ...(body === undefined ? {} : { payload: JSON.stringify(body), headers: { "content-type": "application/json" } }),
  });
  return { status: response.statusCode, ...(response.json() as { code: string; message: string }) };
}

describe("a body", () => {
  test.each([
    ["POST", "/sandboxes", { timeout: 5 }, /^timeout: /],
    ["POST", "/sandboxes", { timeoutMs: "5" }, /^timeoutMs: expected a whole number/],
    ["POST", "/sandboxes", { timeoutMs: 0 }, /^timeoutMs: /],
    ["POST", "/sandboxes", { timeoutMs: 1e15 }, /^timeoutMs: /],
    ["POST", "/sandboxes", { template: "" }, /^template: /],
    ["POST", "/sandboxes", { template: "base", image: "app" }, /^image: expected nothing beside a template/],
    ["POST", "/sandboxes", { limits: { memory: 1 } }, /^limits\.memory: /],
    ["POST", "/sandboxes", { limits: { memoryBytes: 1 } }, /^limits\.memoryBytes: /],
    ["POST", "/sandboxes", { env: { "a=b": "1" } }, /^env\.a=b: /],
    ["POST", "/sandboxes", { env: { A: 1 } }, /^env\.A: expected string/],
    ["POST", "/sandboxes", { env: { A: "\ud800" } }, /^env\.A: /],
    ["POST", "/sandboxes", { metadata: [] }, /^metadata: /],
    ["POST", "/sandboxes", { onTimeout: "explode" }, /^onTimeout: expected kill, pause or stop/],
    ["POST", "/sandboxes", [], /^body: expected object/],
    ["POST", "/sandboxes/x/timeout", {}, /^timeoutMs: /],
    ["POST", "/sandboxes/x/pause", { memory: "no" }, /^memory: /],
    ["POST", "/sandboxes/x/resume", { when: 1 }, /^when: /],
    ["PATCH", "/sandboxes/x/limits", {}, /^body: expected at least one/],
    ["PATCH", "/sandboxes/x/limits", { diskBytes: 1 }, /^diskBytes: /],
    ["PATCH", "/sandboxes/x/limits", { pids: 1 }, /^limits\.pids: /],
    ["POST", "/sandboxes/x/commands", {}, /^argv: /],
    ["POST", "/sandboxes/x/commands", { argv: [] }, /^argv: expected a program/],
    ["POST", "/sandboxes/x/commands", { argv: ["a\0"] }, /^argv\[0\]: /],
    ["POST", "/sandboxes/x/run", { argv: ["a"], pty: { columns: 0, rows: 1 } }, /^pty\.columns: /],
    ["POST", "/sandboxes/x/run", { argv: ["a"], limits: { wallMs: 0 } }, /^limits\.wallMs: /],
    ["POST", "/sandboxes/x/run", { argv: ["a"], stdin: "maybe" }, /^stdin: expected open or closed/],
    ["POST", "/sandboxes/x/commands/1/signal", {}, /^signal: /],
    ["POST", "/sandboxes/x/commands/1/resize", { columns: 1 }, /^rows: /],
    ["POST", "/sandboxes/x/files/move", { from: "/a" }, /^to: /],
    ["POST", "/sandboxes/x/files/directory", { path: "/a", mode: 0o10000 }, /^mode: /],
    ["DELETE", "/sandboxes/x", { now: true }, /^now: /],
  ] as const)("%s %s with %j is refused by name", async (method, url, body, message) => {
    expect(await ask(method, url, body)).toMatchObject({
      status: 400,
      code: "invalid_argument",
      message: expect.stringMatching(message),
    });
  });

  test.each([
    ["{", /^body: expected JSON/],
    [Buffer.from([0x22, 0xff, 0x22]), /UTF-8/],
    ['{"env":{"__proto__":"x"}}', /__proto__/],
  ] as const)("that is %s is refused", async (payload, message) => {
    const response = await app.inject({
      method: "POST",
      url: "/v1/sandboxes",
      payload: payload as string,
      headers: { "content-type": "application/json" },
    });
    expect(response.statusCode).toBe(400);
    expect(response.json()).toMatchObject({ code: "invalid_argument", message: expect.stringMatching(message) });
  });

  test("that is no JSON by its type is refused", async () => {
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    const response = await app.inject({ method: "POST", url: "/v1/sandboxes", payload: "a=b", headers });
    expect(response.statusCode).toBe(400);
    expect(response.json()).toMatchObject({
      message: expect.stringMatching(/^content-type: expected application\/json/),
    });
  });

  test("that is too large is refused", async () => {
    expect(await ask("POST", "/sandboxes", { template: "a".repeat(1024 * 1024) })).toMatchObject({
      status: 413,
      code: "request_too_large",
    });
  });
});

describe("a query", () => {
  test.each([
    ["GET", "/sandboxes?state=running", /^state: /],
    ["GET", "/sandboxes?status=gone", /^status\[0\]: expected creating/],
    ["GET", "/sandboxes?limit=0", /^limit: expected a whole number from 1 to 100/],
    ["GET", "/sandboxes?limit=1&limit=2", /^limit: /],
    ["GET", "/sandboxes?metadata=x", /^metadata: /],
    ["GET", "/sandboxes?cursor=x", /^cursor: /],
    ["GET", "/sandboxes/x?verbose=1", /^verbose: /],
    ["GET", "/sandboxes/x/commands/0", /^command: expected a whole number/],
    ["GET", "/sandboxes/x/commands/abc/output", /^command: /],
    ["GET", "/sandboxes/x/commands/1/output?stdout=-1", /^stdout: /],
    ["GET", "/sandboxes/x/commands/1/output?stdout=99999999999999999999", /^stdout: /],
    ["POST", "/sandboxes/x/commands/1/stdin?close=maybe", /^close: expected 0, 1, true or false/],
    ["DELETE", "/sandboxes/x/commands/1?graceMs=soon", /^graceMs: /],
    ["GET", "/sandboxes/x/files", /^path: /],
    ["GET", "/sandboxes/x/files?path=", /^path: /],
    ["GET", "/sandboxes/x/files?path=%00", /^path: /],
    ["PUT", "/sandboxes/x/files?path=a&mode=999", /^mode: expected an octal mode/],
    ["DELETE", "/sandboxes/x/files?recursive=1", /^path: /],
    ["GET", "/sandboxes/x/files/list?path=a&depth=0", /^depth: /],
    ["GET", "/sandboxes/x/files/watch?path=a&deep=1", /^deep: /],
    ["GET", "/events?after=now", /^after: /],
    ["GET", "/events?after=1&tail=1", /^tail: /],
  ] as const)("%s %s is refused by name", async (method, url, message) => {
    expect(await ask(method, url)).toMatchObject({
      status: 400,
      code: "invalid_argument",
      message: expect.stringMatching(message),
    });
  });

  test("a cursor in a header is checked too", async () => {
    const response = await app.inject({ url: "/v1/events", headers: { "last-event-id": "x" } });
    expect(response.statusCode).toBe(400);
    expect(response.json()).toMatchObject({ message: expect.stringMatching(/^Last-Event-ID: /) });
  });
});

test("an idempotency key that cannot be one is refused", async () => {
  const headers = { "idempotency-key": "two words" };
  const response = await app.inject({ method: "POST", url: "/v1/sandboxes", headers });
  expect(response.statusCode).toBe(400);
  expect(response.json()).toMatchObject({ message: expect.stringMatching(/^Idempotency-Key: /) });
});

test("what is right gets through", async () => {
  expect(await ask("POST", "/sandboxes", { timeoutMs: 1000, limits: { pids: 64 }, env: { A: "b" } })).toMatchObject({
    status: 404,
    message: "reached create",
  });
  expect(await ask("POST", "/sandboxes")).toMatchObject({ message: "reached create" });
});

test("a route that is not there is said in our own words", async () => {
  expect(await ask("GET", "/nothing?key=secret")).toMatchObject({
    status: 404,
    code: "route_not_found",
    message: "there is no GET /v1/nothing",
  });
});

describe("an error", () => {
  async function answerTo(error: Error) {
    const server = fastify();
    const sandboxes = { host: async () => Promise.reject(error) } as unknown as Sandboxes;
    server.decorateRequest("caller");
    await server.register(v1Routes({ sandboxes, log: pino({ level: "silent" }) } as unknown as ServerParts));
    return server.inject("/host");
  }

  test("has its status and is itself", async () => {
    const error = new HoldfastError("rate_limited", "slower", { details: { retryAfterSeconds: 2.2 }, hint: "Wait." });
    const response = await answerTo(error);
    expect([response.statusCode, response.headers["retry-after"]]).toEqual([429, "3"]);
    expect(response.json()).toEqual(error.toJSON());
  });

  test("of ours says nothing of our insides", async () => {
    const response = await answerTo(new TypeError("cannot read /etc/secret"));
    expect(response.statusCode).toBe(500);
    expect(response.body).not.toContain("secret");
    expect(response.json()).toMatchObject({ code: "engine_fault" });
  });
});

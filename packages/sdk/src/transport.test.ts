import { HoldfastError } from "@holdfast/protocol";
import { afterEach, describe, expect, test } from "vitest";
import { Holdfast } from "./holdfast.js";
import { Sandbox } from "./sandbox.js";
import { all, bodyOf, closeHttpServers, quick, sendJson, useHttpServer } from "./testing/use-http-server.js";

afterEach(closeHttpServers);

describe("errors", () => {
  test("are the server's own, rebuilt", async () => {
    const error = {
      code: "sandbox_ended",
      message: "sandbox x has ended",
      hint: "Make another.",
      details: { cause: { kind: "killed" } },
    };
    const { url } = await useHttpServer((_request, response) => sendJson(response, error, 410));
    const failure = await new Holdfast(quick({ url })).host().catch((reason: unknown) => reason);
    expect(failure).toBeInstanceOf(HoldfastError);
    expect((failure as HoldfastError).toJSON()).toEqual(error);
  });

  test.each([
    [401, "unauthenticated"],
    [404, "route_not_found"],
    [418, "invalid_argument"],
    [500, "engine_fault"],
  ])("of others have a code by their status: %i", async (status, code) => {
    const { url } = await useHttpServer((_request, response) => {
      response.writeHead(status).end("<html>no</html>");
    });
    await expect(new Holdfast(quick({ url })).host()).rejects.toMatchObject({
      code,
      message: expect.stringContaining("<html>no</html>"),
    });
  });

  test("say that there is no server", async () => {
    await expect(new Holdfast(quick({ url: "http://127.0.0.1:1" })).host()).rejects.toMatchObject({
      code: "server_unreachable",
      hint: expect.stringContaining("holdfast serve"),
    });
  });

  test("name an address that is none", () => {
    expect(() => new Holdfast({ url: "localhost" })).toThrow(/url: expected an address/);
  });

  test("say that it was you who canceled", async () => {
    const { url } = await useHttpServer(() => {});
    const leaving = new AbortController();
    const waiting = new Holdfast(quick({ url })).host({ signal: leaving.signal });
    setTimeout(() => leaving.abort(), 10);
    await expect(waiting).rejects.toMatchObject({ code: "canceled" });
  });

  test("come for a redirect: the key goes nowhere else", async () => {
    const { url } = await useHttpServer((request, response) => {
      if (request.url === "/elsewhere") sendJson(response, {});
      else response.writeHead(302, { location: "/elsewhere" }).end();
    });
    await expect(new Holdfast(quick({ url })).host()).rejects.toMatchObject({ code: "server_unreachable" });
  });
});

describe("retries", () => {
  test("a create whose answer was lost is asked for once more, with the same key", async () => {
    const tokens: unknown[] = [];
    const { url } = await useHttpServer(async (request, response) => {
      tokens.push(request.headers["idempotency-key"]);
      expect(JSON.parse((await bodyOf(request)).toString())).toEqual({ metadata: { a: "b" } });
      if (tokens.length < 3) response.destroy();
      else sendJson(response, { id: "iabc" }, 201);
    });
    const sandbox = await Sandbox.create({ ...quick({ url }), metadata: { a: "b" } });
    expect(sandbox.id).toBe("iabc");
    expect(tokens).toHaveLength(3);
    expect(new Set(tokens).size).toBe(1);
    expect(tokens[0]).toMatch(/^[0-9a-f]{32}$/);
  });

  test("a command that may have started is not started again", async () => {
    let requests = 0;
    const { transport } = await useHttpServer((_request, response) => {
      requests += 1;
      response.destroy();
    });
    await expect(new Sandbox(transport, "iabc").start("true")).rejects.toMatchObject({ code: "server_unreachable" });
    expect(requests).toBe(1);
  });

  test("a server that is stopping is asked again, whatever was asked", async () => {
    let requests = 0;
    const { transport } = await useHttpServer((_request, response) => {
      requests += 1;
      if (requests === 1) sendJson(response, { code: 503, message: "the server is stopping" }, 503);
      else sendJson(response, { id: 1, pid: 7, ending: null }, 201);
    });
    expect((await new Sandbox(transport, "iabc").start("true")).pid).toBe(7);
  });

  test("a limit that was reached is not waited for", async () => {
    let requests = 0;
    const { url } = await useHttpServer((_request, response) => {
      requests += 1;
      sendJson(response, { code: "limit_reached", message: "5 of 5 sandboxes" }, 429);
    });
    await expect(Sandbox.create(quick({ url }))).rejects.toMatchObject({ code: "limit_reached" });
    expect(requests).toBe(1);
  });

  test("Retry-After is kept to, and known if it is too long", async () => {
    const { url } = await useHttpServer((_request, response) => {
      response.writeHead(429, { "retry-after": "3600" });
      response.end(JSON.stringify({ code: "rate_limited", message: "too many requests" }));
    });
    await expect(new Holdfast(quick({ url })).host()).rejects.toMatchObject({
      code: "rate_limited",
      details: { retryAfterSeconds: 3600 },
    });
  });
});

test("the key and the filters of a list are sent", async () => {
  const seen: { url: string | undefined; key: unknown }[] = [];
  const { url } = await useHttpServer((request, response) => {
    seen.push({ url: request.url, key: request.headers["x-api-key"] });
    const last = request.url?.includes("cursor=") === true;
    sendJson(response, { sandboxes: [{ id: last ? "b" : "a" }], nextCursor: last ? null : "c1" });
  });
  const list = Sandbox.list({ ...quick({ url }), status: ["running", "paused"], metadata: { "k&=": "v=1 %" } });
  expect((await all(list)).map(({ id }) => id)).toEqual(["a", "b"]);
  const query = new URL(seen[0]?.url ?? "", url).searchParams;
  expect(query.getAll("status")).toEqual(["running", "paused"]);
  expect(query.getAll("metadata")).toEqual(["k%26%3D=v%3D1%20%25"]);
  expect(seen.map(({ key }) => key)).toEqual(["e2b_test", "e2b_test"]);
});

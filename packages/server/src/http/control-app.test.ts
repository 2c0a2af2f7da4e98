import type { FastifyInstance } from "fastify";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openTestApp } from "../e2b/testing/test-app.js";
import type { KeyRing } from "../keys/key-ring.js";

const NO_LIMITS = { sandboxes: null, memoryBytes: null, requestsPerSecond: null };

describe("the control plane", () => {
  let app: FastifyInstance;
  let keys: KeyRing;
  let key: string;
  let otherKey: string;
  const undo: (() => Promise<unknown>)[] = [];

  beforeAll(async () => {
    const opened = await openTestApp({ sandboxCpus: 1.5, sandboxMemoryMb: 512, maxTimeoutSeconds: 3600 });
    undo.push(() => opened.close());
    ({ app, keys } = opened);
  });

  /** Keys of its own keep each test from the sandboxes of the others. */
  beforeEach(async () => {
    key = (await keys.create("one", NO_LIMITS)).secret;
    otherKey = (await keys.create("two", NO_LIMITS)).secret;
  });

  afterAll(async () => {
    for (const step of undo.splice(0).reverse()) await step();
  });

  type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

  async function call(
    method: Method,
    url: string,
    body?: unknown,
    options: { key?: string; headers?: Record<string, string> } = {},
  ) {
    const response = await app.inject({
      method,
      url,
      headers: { "x-api-key": options.key ?? key, ...options.headers },
      ...(body === undefined ? {} : { payload: body as object }),
    });
    return {
      status: response.statusCode,
      headers: response.headers,
      // biome-ignore lint/suspicious/noExplicitAny: what a body is like is what the tests are about.
      body: (response.body === "" ? undefined : JSON.parse(response.body)) as any,
    };
  }

  async function create(body: object = {}, options: { key?: string } = {}): Promise<string> {
    const made = await call("POST", "/v2/sandboxes", { templateID: "base", ...body }, options);
    expect(made.status).toBe(201);
    return made.body.sandboxID;
  }

  it("answers nobody without a key, but for its health", async () => {
    expect((await app.inject({ method: "GET", url: "/health" })).statusCode).toBe(204);
    for (const [method, url] of [
      ["GET", "/sandboxes"],
      ["POST", "/v2/sandboxes"],
      ["GET", "/sandboxes/iabc"],
      ["GET", "/volumes"],
      ["GET", "/nothing"],
      ["GET", "/v1/nothing"],
      ["GET", "/v1/sandboxes"],
      ["GET", "/sandboxes/%zz"],
      ["GET", "/.unreadable"],
      ["DELETE", "/health"],
    ] as const) {
      const bare = await app.inject({ method, url });
      expect(bare.statusCode, url).toBe(401);
      const wrong = await app.inject({ method, url, headers: { "x-api-key": `e2b_${"0".repeat(40)}` } });
      expect(wrong.statusCode, url).toBe(401);
      if (!url.startsWith("/v1")) expect(wrong.json()).toMatchObject({ code: 401, error_code: "unauthenticated" });
    }
  });

  it("makes a sandbox and shows it", async () => {
    const made = await call("POST", "/sandboxes", { templateID: "base", timeout: 60, metadata: { a: "b" } });
    expect(made.status).toBe(201);
    expect(made.body).toMatchObject({ templateID: "base", envdVersion: "0.6.13", domain: "box.test:3000" });
    expect(made.body.envdAccessToken).toEqual(expect.any(String));
    const shown = await call("GET", `/sandboxes/${made.body.sandboxID}`);
    expect(shown.status).toBe(200);
    expect(shown.body).toMatchObject({
      state: "running",
      metadata: { a: "b" },
      envdAccessToken: made.body.envdAccessToken,
    });
    expect(Date.parse(shown.body.endAt) - Date.parse(shown.body.startedAt)).toBe(60_000);
  });

  it("gives v1 and v2 their own default timeouts", async () => {
    for (const [path, seconds] of [
      ["/sandboxes", 15],
      ["/v2/sandboxes", 300],
    ] as const) {
      const { sandboxID } = (await call("POST", path, { templateID: "base" })).body;
      const { body } = await call("GET", `/sandboxes/${sandboxID}`);
      expect(Date.parse(body.endAt) - Date.parse(body.startedAt)).toBe(seconds * 1000);
    }
  });

  it("makes one sandbox for one Idempotency-Key", async () => {
    const headers = { "idempotency-key": "again and again" };
    const [first, second] = await Promise.all([
      call("POST", "/v2/sandboxes", { templateID: "base" }, { headers }),
      call("POST", "/v2/sandboxes", { templateID: "base" }, { headers }),
    ]);
    expect(first.body.sandboxID).toBe(second.body.sandboxID);
    const other = await call("POST", "/v2/sandboxes", { templateID: "base", timeout: 7 }, { headers });
    expect(other.body).toMatchObject({ code: 409, error_code: "idempotency_conflict" });
    const bad = await call("POST", "/v2/sandboxes", { templateID: "base" }, { headers: { "idempotency-key": "" } });
    expect(bad.body).toMatchObject({ code: 400, message: expect.stringMatching(/^Idempotency-Key: /) });
    await call("DELETE", `/sandboxes/${first.body.sandboxID}`);
    expect((await call("POST", "/v2/sandboxes", { templateID: "base" }, { headers })).status).toBe(409);
  });

  it("kills a sandbox once, and says afterwards how it ended", async () => {
    const id = await create();
    expect((await call("DELETE", `/sandboxes/${id}`)).status).toBe(204);
    const again = await call("DELETE", `/sandboxes/${id}`);
    expect(again.body).toMatchObject({ code: 404, error_code: "sandbox_ended" });
    const shown = await call("GET", `/sandboxes/${id}`);
    expect(shown.status).toBe(404);
    expect(shown.body).toMatchObject({ code: 404, state: "ended", cause: { kind: "killed" } });
    expect(shown.body.message).toMatch(
      new RegExp(
        `^Sandbox "${id}" doesn't exist or you don't have access to it\\. It ended at 20.+Z: Killed by API key k`,
      ),
    );
    expect((await call("POST", `/sandboxes/${id}/connect`, { timeout: 1 })).body.code).toBe(404);
  });

  it("pauses and resumes", async () => {
    const id = await create();
    expect((await call("POST", `/sandboxes/${id}/resume`)).body).toMatchObject({ code: 409 });
    expect((await call("POST", `/sandboxes/${id}/pause`)).status).toBe(204);
    expect((await call("POST", `/sandboxes/${id}/pause`, {})).body).toMatchObject({ code: 409 });
    expect((await call("GET", `/sandboxes/${id}`)).body.state).toBe("paused");
    expect((await call("POST", `/sandboxes/${id}/timeout`, { timeout: 5 })).body.code).toBe(409);
    expect((await call("POST", `/sandboxes/${id}/resume`, { autoPause: true })).body.code).toBe(501);
    expect((await call("POST", `/sandboxes/${id}/resume`, { timeout: 20, autoPause: false })).status).toBe(201);
    expect((await call("POST", `/v2/sandboxes/${id}/connect`, {})).status).toBe(200);
    expect((await call("POST", `/sandboxes/${id}/pause`, { memory: false })).status).toBe(204);
    expect((await call("POST", `/v2/sandboxes/${id}/connect`)).status).toBe(201);
    expect((await call("POST", `/sandboxes/${id}/pause`, {})).status).toBe(204);
    expect((await call("DELETE", `/sandboxes/${id}`)).status).toBe(204);
  });

  it("moves the end as asked, and by connecting only away", async () => {
    const id = await create({ timeout: 100 });
    const endsIn = async () =>
      Math.round((Date.parse((await call("GET", `/sandboxes/${id}`)).body.endAt) - Date.now()) / 1000);
    expect((await call("POST", `/sandboxes/${id}/timeout`, { timeout: 50 })).status).toBe(204);
    expect(await endsIn()).toBe(50);
    await call("POST", `/sandboxes/${id}/connect`, { timeout: 10 });
    expect(await endsIn()).toBe(50);
    await call("POST", `/v2/sandboxes/${id}/connect`, { timeout: 70 });
    expect(await endsIn()).toBe(70);
    expect((await call("POST", `/sandboxes/${id}/refreshes`, { duration: 20 })).status).toBe(204);
    expect(await endsIn()).toBe(70);
    expect((await call("POST", `/sandboxes/${id}/refreshes`, { duration: 90 })).status).toBe(204);
    expect(await endsIn()).toBe(90);
  });

  it("keeps network settings, and a traffic token with them", async () => {
    const made = await call("POST", "/v2/sandboxes", {
      templateID: "base",
      network: { allowPublicTraffic: false, denyOut: ["0.0.0.0/0"] },
    });
    expect(made.body.trafficAccessToken).toEqual(expect.any(String));
    const url = `/sandboxes/${made.body.sandboxID}`;
    expect((await call("PUT", `${url}/network`, { allowOut: ["8.8.8.8"], allow_internet_access: true })).status).toBe(
      204,
    );
    expect((await call("GET", url)).body).toMatchObject({
      allowInternetAccess: true,
      network: { allowOut: ["8.8.8.8"], allowPublicTraffic: false },
    });
    expect((await call("GET", url)).body.network).not.toHaveProperty("denyOut");
  });

  it("lists in pages, and the last page says so", async () => {
    const ids = [await create({ metadata: { "k 1": "v&2" } }), await create(), await create()];
    await call("POST", `/sandboxes/${ids[1]}/pause`);
    const seen: string[] = [];
    let token = "";
    for (let pages = 1; ; pages += 1) {
      const page = await call("GET", `/v2/sandboxes?limit=1&order=asc&nextToken=${token}`);
      seen.push(...page.body.map((row: { sandboxID: string }) => row.sandboxID));
      expect(page.headers["x-total-running"]).toBe("2");
      if (page.headers["x-next-token"] === undefined) {
        expect(pages).toBe(3);
        break;
      }
      token = String(page.headers["x-next-token"]);
    }
    expect(seen.toSorted()).toEqual(ids.toSorted());
    const idsOf = async (url: string) =>
      (await call("GET", url)).body.map((row: { sandboxID: string }) => row.sandboxID);
    expect(await idsOf("/v2/sandboxes?state=paused")).toEqual([ids[1]]);
    expect(await idsOf("/v2/sandboxes?state=running,paused")).toHaveLength(3);
    expect(await idsOf("/v2/sandboxes?metadata=k%2525201%3Dv%2525262")).toEqual([ids[0]]);
    expect(await idsOf("/sandboxes?metadata=k%2525201%3Dv%2525262")).toEqual([ids[0]]);
    expect(await idsOf("/sandboxes")).toHaveLength(2);
    expect(await idsOf("/v2/sandboxes?template=other")).toEqual([]);
    expect(await idsOf("/v2/sandboxes?startedAfter=2999-01-01T00:00:00Z")).toEqual([]);
  });

  it("shows counters and logs", async () => {
    const id = await create();
    expect((await call("GET", `/sandboxes/${id}/metrics`)).body[0]).toMatchObject({ memUsed: 1024, diskUsed: 4096 });
    expect((await call("GET", `/sandboxes/metrics?sandbox_ids=${id}`)).status).toBe(200);
    await call("POST", `/sandboxes/${id}/pause`);
    const v1 = (await call("GET", `/sandboxes/${id}/logs`)).body;
    expect(v1.logEntries.map((entry: { fields: { event: string } }) => entry.fields.event)).toEqual([
      "created",
      "paused",
    ]);
    expect(JSON.parse(v1.logs[0].line)).toMatchObject({ event: "created", level: "info" });
    await call("DELETE", `/sandboxes/${id}`);
    const v2 = (await call("GET", `/v2/sandboxes/${id}/logs?direction=backward&limit=2`)).body;
    expect(v2.logs.map((entry: { fields: { event: string } }) => entry.fields.event)).toEqual(["ended", "ending"]);
    expect((await call("GET", `/v2/sandboxes/${id}/logs?level=error`)).body).toEqual({ logs: [] });
    expect((await call("GET", `/v2/sandboxes/${id}/logs?search=Created`)).body.logs).toHaveLength(1);
  });

  it("keeps one key's sandboxes from another", async () => {
    const id = await create();
    for (const [method, url, body] of [
      ["GET", `/sandboxes/${id}`, undefined],
      ["DELETE", `/sandboxes/${id}`, undefined],
      ["POST", `/sandboxes/${id}/timeout`, { timeout: 1 }],
      ["POST", `/sandboxes/${id}/refreshes`, {}],
      ["POST", `/sandboxes/${id}/connect`, { timeout: 1 }],
      ["POST", `/v2/sandboxes/${id}/connect`, {}],
      ["POST", `/sandboxes/${id}/pause`, {}],
      ["POST", `/sandboxes/${id}/resume`, {}],
      ["PUT", `/sandboxes/${id}/network`, {}],
      ["GET", `/sandboxes/${id}/metrics`, undefined],
      ["GET", `/sandboxes/${id}/logs`, undefined],
      ["GET", `/v2/sandboxes/${id}/logs`, undefined],
    ] as const) {
      const refused = await call(method, url, body, { key: otherKey });
      expect(refused.body, url).toEqual({
        code: 404,
        message: `Sandbox "${id}" doesn't exist or you don't have access to it`,
        error_code: "sandbox_not_found",
      });
    }
    expect((await call("GET", "/v2/sandboxes", undefined, { key: otherKey })).body).toEqual([]);
    expect((await call("GET", `/sandboxes/metrics?sandbox_ids=${id}`, undefined, { key: otherKey })).body).toEqual({
      sandboxes: {},
    });
    expect((await call("GET", `/sandboxes/${id}`)).body.state).toBe("running");
  });

  it("says when to come back if a key has what it may have", async () => {
    const full = (await keys.create("full", { ...NO_LIMITS, sandboxes: 0 })).secret;
    const refused = await call("POST", "/v2/sandboxes", { templateID: "base" }, { key: full });
    expect(refused.body).toMatchObject({ code: 429, error_code: "limit_reached" });
    expect(refused.headers["retry-after"]).toMatch(/^[1-9]\d*$/);
  });

  it("knows its templates and the key's team", async () => {
    const unknown = await call("POST", "/v2/sandboxes", { templateID: "nope" });
    expect(unknown.body).toEqual({
      code: 404,
      message: "template 'nope' not found. This server has: base.",
      error_code: "image_not_found",
    });
    await create({ templateID: "base:default" });
    expect((await call("GET", "/templates")).body).toMatchObject([
      { templateID: "base", names: ["base"], aliases: ["base"], cpuCount: 2, memoryMB: 512, spawnCount: 1 },
    ]);
    expect((await call("GET", "/templates/aliases/base")).body).toEqual({ templateID: "base", public: true });
    expect((await call("GET", "/templates/aliases/team%2Fbase%3Av1")).body.message).toMatch(
      /^template 'team\/base:v1' not found/,
    );
    const [team] = (await call("GET", "/teams")).body;
    expect(team).toEqual({ teamID: expect.stringMatching(/^k/), name: "one", apiKey: key, isDefault: true });
    expect((await call("GET", `/templates?teamID=${team.teamID}`)).status).toBe(200);
    expect((await call("GET", "/templates?teamID=x")).status).toBe(403);
  });

  it("says what it does not do", async () => {
    for (const [method, url, named] of [
      ["POST", "/templates", "POST /templates"],
      ["POST", "/templates/x/builds/y", "POST /templates/{templateID}/builds/{buildID}"],
      ["GET", "/secrets", "GET /secrets"],
    ] as const) {
      const { status, body } = await call(method, url);
      expect(status, url).toBe(501);
      expect(body).toMatchObject({ code: 501, error_code: "not_implemented" });
      expect(body.message.startsWith(`${named} is not implemented by this server yet. `), body.message).toBe(true);
    }
  });

  it.each([
    ["GET", "/v2/sandboxes?limit=0", undefined, 400, "limit"],
    ["GET", "/v2/sandboxes?limit=101", undefined, 400, "limit"],
    ["GET", "/v2/sandboxes?limit=1e1", undefined, 400, "limit"],
    ["GET", "/v2/sandboxes?limit=1&limit=2", undefined, 400, "limit"],
    ["GET", "/v2/sandboxes?state=dead", undefined, 400, "state"],
    ["GET", "/v2/sandboxes?order=up", undefined, 400, "order"],
    ["GET", "/v2/sandboxes?startedAfter=yesterday", undefined, 400, "startedAfter"],
    ["GET", "/v2/sandboxes?nextToken=zzz", undefined, 400, "nextToken"],
    ["GET", "/v2/sandboxes?metadata=%25zz", undefined, 400, "metadata"],
    ["GET", "/v2/sandboxes?metadata=%ff", undefined, 400, "query"],
    ["GET", "/v2/sandboxes?nope=1", undefined, 400, "nope"],
    ["GET", "/v2/sandboxes?__proto__=1", undefined, 400, "__proto__"],
    ["GET", "/sandboxes/metrics", undefined, 400, "sandbox_ids"],
    ["GET", "/sandboxes/metrics?sandbox_ids=..", undefined, 400, "sandbox_ids"],
    ["GET", "/sandboxes/iabc/metrics?start=2&end=1", undefined, 400, "start"],
    ["GET", "/sandboxes/iabc/metrics?start=-1", undefined, 400, "start"],
    ["GET", "/v2/sandboxes/iabc/logs?direction=up", undefined, 400, "direction"],
    ["POST", "/v2/sandboxes", undefined, 400, "templateID"],
    ["POST", "/v2/sandboxes", "[]", 400, "body"],
    ["POST", "/v2/sandboxes", "null", 400, "body"],
    ["POST", "/v2/sandboxes", "{", 400, "body"],
    ["POST", "/v2/sandboxes", '{"templateID":"base","__proto__":{}}', 400, "body"],
    ["POST", "/v2/sandboxes", `{"templateID":${"[".repeat(100_000)}`, 400, "body"],
    ["POST", "/v2/sandboxes", '{"templateID":"base","metadata":{"a":1}}', 400, "metadata.a"],
    ["POST", "/v2/sandboxes", `{"templateID":"${"x".repeat(1024 * 1024)}"}`, 413, "body"],
    ["POST", "/sandboxes/iabc/timeout", "{}", 400, "timeout"],
    ["POST", "/sandboxes/iabc/timeout", '{"timeout":-1}', 400, "timeout"],
    ["POST", "/sandboxes/iabc/timeout", '{"timeout":999999999999}', 400, "timeout"],
    ["POST", "/sandboxes/iabc/connect", '{"timeout":"1"}', 400, "timeout"],
    ["POST", "/sandboxes/iabc/pause", '{"memory":1}', 400, "memory"],
    ["PUT", "/sandboxes/iabc/network", '{"allowOut":["1.2.3"]}', 400, "allowOut[0]"],
    ["PUT", "/sandboxes/iabc/network", '{"allowPublicTraffic":true}', 400, "allowPublicTraffic"],
    ["GET", "/sandboxes/%zz", undefined, 400, "path"],
    ["GET", "/sandboxes/%ff", undefined, 400, "path"],
  ] as const)("refuses %s %s %s", async (method, url, payload, status, field) => {
    const response = await app.inject({
      method,
      url,
      headers: { "x-api-key": key, ...(payload === undefined ? {} : { "content-type": "application/json" }) },
      ...(payload === undefined ? {} : { payload }),
    });
    expect(response.statusCode).toBe(status);
    expect(response.json()).toMatchObject({ code: status, message: expect.stringMatching(/^\S+: expected /) });
    expect(response.json().message.split(":")[0]).toBe(field);
  });

  it("refuses other media types, unknown routes and ids that cannot be", async () => {
    const text = await call("POST", "/v2/sandboxes", "x", { headers: { "content-type": "text/plain" } });
    expect(text.body).toMatchObject({
      code: 415,
      message: 'content-type: expected application/json, got "text/plain"',
    });
    expect((await call("GET", "/nothing?secret=1")).body).toEqual({
      code: 404,
      message: "there is no GET /nothing",
      error_code: "route_not_found",
    });
    for (const id of ["non-existing", "..%2F..%2Fetc%2Fpasswd", "A", "x".repeat(5000), "%00", "i%25"]) {
      const refused = await call("DELETE", `/sandboxes/${id}`);
      expect(refused.body, id).toMatchObject({ code: 404, error_code: "sandbox_not_found" });
      expect(refused.body.message.length).toBeLessThan(200);
    }
  });
});

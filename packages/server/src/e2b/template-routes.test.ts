import { createHash, randomBytes } from "node:crypto";
import { createImageId, type ImageRecord } from "@holdfast/images";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openTestApp, type TestApp } from "./testing/test-app.js";

const NO_LIMITS = { sandboxes: null, memoryBytes: null, requestsPerSecond: null };
const HASH = "ab".repeat(32);

let server: TestApp;
let key: string;
let keyId: string;
let otherKey: string;

beforeAll(async () => {
  server = await openTestApp();
});

/** Keys of its own keep each test from what the others have built. */
beforeEach(async () => {
  const made = await server.keys.create("one", NO_LIMITS);
  key = made.secret;
  keyId = made.key.id;
  otherKey = (await server.keys.create("two", NO_LIMITS)).secret;
});

afterAll(() => server.close());

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

async function call(method: Method, url: string, body?: unknown, options: { key?: string } = {}) {
  const response = await server.app.inject({
    method,
    url,
    headers: { "x-api-key": options.key ?? key, host: "api.box.test" },
    ...(body === undefined ? {} : { payload: body as object }),
  });
  return {
    status: response.statusCode,
    headers: response.headers,
    // biome-ignore lint/suspicious/noExplicitAny: what a body is like is what the tests are about.
    body: (response.body === "" ? undefined : JSON.parse(response.body)) as any,
  };
}

async function request(name: string, more: object = {}, options: { key?: string } = {}) {
  const { status, body } = await call("POST", "/v3/templates", { name, ...more }, options);
  expect(status).toBe(202);
  return body as { templateID: string; buildID: string };
}

/** Without a key: the address says it all. */
function send(url: string, payload: Buffer) {
  const { pathname, search } = new URL(url);
  return server.app.inject({ method: "PUT", url: `${pathname}${search}`, payload });
}

function snapshotRecord(owner: string, fromSandbox: string): ImageRecord {
  const id = createImageId();
  return {
    version: 1,
    id,
    kind: "snapshot",
    digest: `sha256:${createHash("sha256").update(id).digest("hex")}`,
    owner,
    createdAt: new Date().toISOString(),
    layers: [],
    below: { kind: "host" },
    disk: null,
    config: {
      env: {},
      workdir: null,
      user: null,
      entrypoint: null,
      cmd: null,
      exposedPorts: [],
      labels: {},
      start: null,
      architecture: "amd64",
      os: "linux",
    },
    floor: null,
    parent: null,
    fromSandbox: fromSandbox as ImageRecord["fromSandbox"],
    buildId: null,
    limits: {},
  };
}

describe("a template", () => {
  it("is asked for by name, and stays the same when it is asked for again", async () => {
    const first = await call("POST", "/v3/templates", { name: "App:v1", tags: ["stable"], cpuCount: 2, memoryMB: 512 });
    expect(first.status).toBe(202);
    expect(first.body).toEqual({
      templateID: expect.stringMatching(/^t[a-z0-9]{20}$/),
      buildID: expect.stringMatching(/^b[a-z0-9]{20}$/),
      public: false,
      names: ["app"],
      aliases: ["app"],
      tags: ["v1", "stable"],
    });
    const again = await call("POST", "/v2/templates", { alias: "app" });
    expect(again.status).toBe(202);
    expect(again.body).toMatchObject({ templateID: first.body.templateID, tags: ["default"] });
    expect(again.body.buildID).not.toBe(first.body.buildID);
    const shown = await call("GET", `/templates/${first.body.templateID}`);
    expect(shown.body).toMatchObject({
      templateID: first.body.templateID,
      names: ["app"],
      public: false,
      spawnCount: 0,
    });
    expect(shown.body.builds).toMatchObject([
      { buildID: again.body.buildID, status: "waiting" },
      { buildID: first.body.buildID, status: "waiting", cpuCount: 2, memoryMB: 512 },
    ]);
    const page = await call("GET", "/templates/app?limit=1");
    expect(page.body.builds).toHaveLength(1);
    const rest = await call("GET", `/templates/app?limit=1&nextToken=${page.headers["x-next-token"]}`);
    expect(rest.body.builds).toMatchObject([{ buildID: first.body.buildID }]);
    expect(rest.headers["x-next-token"]).toBeUndefined();
    const listed = (await call("GET", "/templates")).body;
    expect(listed).toMatchObject([
      { templateID: first.body.templateID, buildCount: 2, buildStatus: "waiting", names: ["app"] },
      { templateID: "base", public: true },
    ]);
  });

  it("is listed a page at a time", async () => {
    for (const name of ["one", "two", "three"]) await request(name);
    const seen: string[] = [];
    let token = "";
    do {
      const { body, headers } = await call("GET", `/v2/templates?limit=2&nextToken=${token}`);
      seen.push(...body.map(({ names }: { names: string[] }) => names[0]));
      token = String(headers["x-next-token"] ?? "");
    } while (token !== "");
    expect(seen.toSorted()).toEqual(["base", "one", "three", "two"]);
    expect((await call("GET", "/v2/templates?teamID=x")).status).toBe(403);
  });

  it.each([
    [{}, 400, "name"],
    [{ name: "" }, 400, "name"],
    [{ name: "a/b" }, 400, "name"],
    [{ name: "app:" }, 400, "name"],
    [{ name: 1 }, 400, "name"],
    [{ name: "app", tags: ["a b"] }, 400, "tags[0]"],
    [{ name: "app", tags: "x" }, 400, "tags"],
    [{ name: "app", cpuCount: 0 }, 400, "cpuCount"],
    [{ name: "app", memoryMB: 64 }, 400, "memoryMB"],
    [{ name: "app", memoryMB: 1024 * 1024 }, 400, "limits.memoryBytes"],
    [{ name: "app", minFreeDiskMb: 1024 * 1024 }, 400, "limits.diskBytes"],
    [{ name: "app", unknown: 1 }, 400, "unknown"],
    [{ name: "base" }, 403, "name"],
  ])("cannot be %j", async (body, status, field) => {
    const refused = await call("POST", "/v3/templates", body);
    expect(refused.body).toMatchObject({ code: status, message: expect.stringMatching(/: /) });
    expect(refused.body.message.split(":")[0]).toBe(field);
  });

  it("is its key's alone", async () => {
    const { templateID, buildID } = await request("app");
    for (const [method, url, body] of [
      ["GET", `/templates/${templateID}`, undefined],
      ["GET", "/templates/app", undefined],
      ["GET", "/templates/aliases/app", undefined],
      ["GET", `/templates/${templateID}/builds/${buildID}/status`, undefined],
      ["GET", `/templates/${templateID}/builds/${buildID}/logs`, undefined],
      ["GET", `/templates/${templateID}/files/${HASH}`, undefined],
      ["GET", `/templates/${templateID}/tags`, undefined],
      ["POST", `/v2/templates/${templateID}/builds/${buildID}`, { steps: [] }],
      ["POST", "/templates/tags", { target: "app:default", tags: ["x"] }],
      ["DELETE", "/templates/tags", { name: "app", tags: ["default"] }],
      ["PATCH", `/templates/${templateID}`, { public: false }],
      ["DELETE", `/templates/${templateID}`, undefined],
      ["POST", "/v2/sandboxes", { templateID }],
    ] as const) {
      const { body: answer } = await call(method, url, body, { key: otherKey });
      expect(answer, `${method} ${url}`).toMatchObject({ code: 404, error_code: "image_not_found" });
      expect(answer.message).not.toContain(keyId);
    }
    const theirs = await request("app", {}, { key: otherKey });
    expect(theirs.templateID).not.toBe(templateID);
    // A build of one template is none of another's.
    const mixed = await call("GET", `/templates/${theirs.templateID}/builds/${buildID}/status`, undefined, {
      key: otherKey,
    });
    expect(mixed.body).toMatchObject({ code: 404, error_code: "build_not_found" });
    expect((await call("GET", "/templates", undefined, { key: otherKey })).body).toHaveLength(2);
  });

  it("is not made public, and not changed if it is the server's own", async () => {
    const { templateID } = await request("app");
    expect((await call("PATCH", `/templates/${templateID}`, { public: false })).status).toBe(200);
    expect((await call("PATCH", `/v2/templates/${templateID}`, {})).body).toEqual({ names: ["app"] });
    expect((await call("PATCH", `/v2/templates/${templateID}`, { public: true })).body).toMatchObject({ code: 501 });
    expect((await call("PATCH", "/templates/base", { public: false })).status).toBe(403);
    expect((await call("DELETE", "/templates/base")).status).toBe(403);
    expect((await call("POST", "/templates/tags", { target: "base", tags: ["x"] })).status).toBe(403);
    expect((await call("GET", "/templates/base")).body).toMatchObject({ builds: [{ status: "ready" }], public: true });
  });

  it("is there from when it is asked for until it is deleted", async () => {
    expect((await call("GET", "/templates/aliases/app")).status).toBe(404);
    const { templateID, buildID } = await request("app");
    expect((await call("GET", "/templates/aliases/app")).body).toEqual({ templateID, public: false });
    expect((await call("GET", "/templates/aliases/app%3Adefault")).body).toMatchObject({
      code: 404,
      message: "template 'app:default' not found. No build of it is ready yet.",
    });
    expect((await call("DELETE", "/templates/app%3Adefault")).status).toBe(400);
    expect((await call("DELETE", "/templates/app")).status).toBe(204);
    expect((await call("DELETE", `/templates/${templateID}`)).status).toBe(404);
    expect((await call("GET", `/templates/${templateID}/builds/${buildID}/status`)).status).toBe(404);
  });
});

describe("files of a template", () => {
  it("are sent to an address that needs no key, once", async () => {
    const { templateID } = await request("app");
    const ask = () => call("GET", `/templates/${templateID}/files/${HASH}`);
    const before = await ask();
    expect(before.status).toBe(201);
    expect(before.body).toEqual({
      present: false,
      url: expect.stringMatching(/^http:\/\/api\.box\.test\/template-files\//),
    });
    const content = randomBytes(100_000);
    expect((await send(before.body.url, content)).statusCode).toBe(200);
    expect((await ask()).body.present).toBe(true);
    const digest = `sha256:${createHash("sha256").update(content).digest("hex")}` as const;
    expect(server.images.store.blobs.has(digest)).toBe(true);
    const theirs = await request("app", {}, { key: otherKey });
    const other = await call("GET", `/templates/${theirs.templateID}/files/${HASH}`, undefined, { key: otherKey });
    expect(other.body.present).toBe(false);
  });

  it("are refused elsewhere, and after the key or the template is gone", async () => {
    const { templateID } = await request("app");
    const { url } = (await call("GET", `/templates/${templateID}/files/${HASH}`)).body as { url: string };
    const wrong = [
      url.replace(HASH, "cd".repeat(32)),
      url.replace(templateID, `t${"0".repeat(20)}`),
      url.replace(/signature=\w{4}/, "signature=0000"),
      url.replace(/expires=\d+/, "expires=99999999999"),
      url.replace(/key=\w+/, "key=operator"),
      url.replace(HASH, "nothing"),
      url.replace(/\?.*/, ""),
      `${url}&more=1`,
    ];
    for (const address of wrong) expect((await send(address, Buffer.from("x"))).statusCode, address).toBe(401);
    expect((await send(url, Buffer.from("x"))).statusCode).toBe(200);
    await server.keys.revoke(keyId);
    expect((await send(url, Buffer.from("x"))).statusCode).toBe(401);
  });

  it("are called by 64 hex digits", async () => {
    const { templateID } = await request("app");
    for (const hash of ["x", "AB".repeat(32), "..%2F..%2Fetc", "a".repeat(63)]) {
      expect((await call("GET", `/templates/${templateID}/files/${hash}`)).body).toMatchObject({ code: 400 });
    }
  });
});

describe("a build of a template", () => {
  it("is started once, and tells what became of it", async () => {
    const { templateID, buildID } = await request("app");
    const path = `/templates/${templateID}/builds/${buildID}`;
    expect((await call("GET", `${path}/status`)).body).toEqual({
      templateID,
      buildID,
      status: "waiting",
      logs: [],
      logEntries: [],
    });
    const lost = { steps: [{ type: "COPY", args: ["a", "b"], filesHash: "ef".repeat(32) }] };
    expect((await call("POST", `/v2${path}`, lost)).body).toMatchObject({
      code: 400,
      message: expect.stringMatching(/^steps\[0\]\.filesHash: these files were not sent/),
    });
    const body = {
      fromImage: "nowhere/nothing:1",
      steps: [{ type: "RUN", args: ["true"], force: false }],
      force: false,
    };
    const [one, two] = await Promise.all([call("POST", `/v2${path}`, body), call("POST", `/v2${path}`, body)]);
    expect([one.status, two.status].toSorted()).toEqual([202, 400]);
    const started = one.status === 202 ? one : two;
    expect(started.headers["content-length"]).toBe("0");
    expect(started.body).toBeUndefined();
    await expect.poll(async () => (await call("GET", `${path}/status`)).body.status).toBe("error");
    const { body: status } = await call("GET", `${path}/status?logsOffset=0`);
    expect(status.reason).toMatchObject({ step: "base", message: expect.stringContaining("nowhere/nothing:1") });
    expect((await call("GET", `${path}/status?logsOffset=${status.logEntries.length}`)).body.logEntries).toEqual([]);
    expect((await call("GET", `${path}/logs`)).status).toBe(200);
    expect((await call("POST", `/v2${path}`, body)).status).toBe(400);
    expect((await call("POST", "/v2/sandboxes", { templateID })).body).toMatchObject({ code: 404 });
  });

  it.each([
    [{ fromImage: "a", fromTemplate: "b" }, 400, "fromTemplate"],
    [{ fromTemplate: "nothing" }, 404, "template 'nothing' not found"],
    [{ fromImage: "a", fromImageRegistry: { type: "registry", username: "u" } }, 400, "fromImageRegistry.password"],
    [{ steps: [{ type: "NOPE" }] }, 400, "steps[0].type"],
    [{ fromImage: "not a name!" }, 400, "template.base.name"],
    [{ unknown: 1 }, 400, "unknown"],
  ])("is not started with %j, and can be started after that", async (body, code, text) => {
    const { templateID, buildID } = await request("app");
    const refused = await call("POST", `/v2/templates/${templateID}/builds/${buildID}`, body);
    expect(refused.body).toMatchObject({ code });
    expect(refused.body.message.startsWith(text), refused.body.message).toBe(true);
    expect((await call("GET", `/templates/${templateID}/builds/${buildID}/status`)).body.status).toBe("waiting");
  });

  it("that an earlier server did not see the end of has failed", async () => {
    const { templateID, buildID } = await request("app");
    await server.store.templates.claimBuild(buildID, { leadingSteps: 2, startedAt: new Date() });
    const { body } = await call("GET", `/templates/${templateID}/builds/${buildID}/status`);
    expect(body).toMatchObject({
      status: "error",
      reason: { step: "base", message: "the files of this build are gone" },
    });
  });
});

describe("snapshots", () => {
  it("are listed and deleted by their owner alone", async () => {
    const record = snapshotRecord(keyId, "iabc");
    server.images.store.put(record);
    server.images.store.setName({ owner: keyId, name: "snap", tag: "default" }, record.id);
    const unnamed = snapshotRecord(keyId, "ixyz");
    server.images.store.put(unnamed);
    const list = async (query: string, as = key) =>
      (await call("GET", `/snapshots?${query}`, undefined, { key: as })).body.map(
        ({ snapshotID }: { snapshotID: string }) => snapshotID,
      );
    expect((await list("")).toSorted()).toEqual([`${unnamed.id}:default`, "snap:default"].toSorted());
    expect(await list("sandboxID=iabc")).toEqual(["snap:default"]);
    expect(await list("name=snap")).toEqual(["snap:default"]);
    expect(await list("name=SNAP%3Adefault")).toEqual(["snap:default"]);
    expect(await list("name=snap%3Aother")).toEqual([]);
    expect(await list(`name=${unnamed.id}`)).toEqual([`${unnamed.id}:default`]);
    expect(await list("", otherKey)).toEqual([]);
    for (const id of [record.id, `${record.id}:default`, "snap", "snap%3Adefault"]) {
      expect((await call("DELETE", `/templates/${id}`, undefined, { key: otherKey })).status, id).toBe(404);
      expect(
        (await call("POST", "/v2/sandboxes", { templateID: decodeURIComponent(id) }, { key: otherKey })).status,
      ).toBe(404);
    }
    expect((await call("POST", "/v3/templates", { name: "snap" })).body).toMatchObject({ code: 400 });
    expect((await call("POST", "/v2/sandboxes", { templateID: "snap" })).body).toMatchObject({
      templateID: "snap:default",
      alias: "snap",
    });
    expect((await call("DELETE", "/templates/snap%3Adefault")).status).toBe(204);
    expect((await call("DELETE", "/templates/snap%3Adefault")).status).toBe(404);
    expect((await call("DELETE", `/templates/${unnamed.id}%3Adefault`)).status).toBe(204);
  });
});

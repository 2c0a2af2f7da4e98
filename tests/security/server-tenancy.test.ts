/** Without a key there is nothing; with one there is what belongs to it, and nobody else's. */
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  envelope,
  exchange,
  type HeaderList,
  type RawAnswer,
  RawConnection,
  type RawRequest,
  requestBytes,
} from "../helpers/raw-http.js";
import { TEST_DOMAIN, useServer } from "../helpers/use-server.js";
import {
  type Client,
  controlHeaders,
  createClient,
  createKey,
  ENVD_PORT,
  expectWell,
  forEachOf,
  JSON_TYPE,
  revokeKey,
  type TestSandbox,
} from "./server-client.js";
import { type Route, routes } from "./server-routes.js";
import { rpcCases, rpcs } from "./server-rpcs.js";
import { fill } from "./server-wrongs.js";

const NOBODY = "iaaaaaaaaaaaaaaaaaaaa";
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "LOCK", "M-SEARCH"];
const server = useServer({ args: ["--domain", TEST_DOMAIN, "--key-requests-per-second", "none"] });
let a: Client;
let b: Client;
let ofA: TestSandbox;
let ofB: TestSandbox;
let pid = 0;

beforeAll(async () => {
  pid = server.pid;
  a = createClient(server, server.apiKey);
  b = createClient(server, createKey(server, "b").key);
  [ofA, ofB] = await Promise.all([a.create({ metadata: { owner: "a" } }), b.create({ metadata: { owner: "b" } })]);
}, 60_000);

afterEach(async () => {
  await expectWell(server, pid);
});

const send = (request: RawRequest) => exchange(server.port, request);
const host = (name = "localhost") => ["Host", name] as const;

/** Every route of the API, with a right request for the sandbox. */
function requestsAbout(id: string): { readonly route: string; readonly request: RawRequest }[] {
  const own: readonly Route[] = [...routes.e2b, ...routes.v1];
  const bare = routes.missing.map((route): Route => ({ route }));
  return [...own, ...bare].map(({ route, body, query }) => {
    const [method = "GET", path = "/"] = route.split(" ");
    const target = query === undefined ? fill(path, id) : `${fill(path, id)}?${query}`;
    return {
      route,
      request: { method, target, ...(body === undefined ? {} : { headers: [JSON_TYPE], body: JSON.stringify(body) }) },
    };
  });
}

/** The two that need no API key: the one tells nothing, the other has rules of its own. */
const isForAll = (target = ""): boolean => target === "/health" || target === "/metrics";

describe("without a key", () => {
  test("every path answers every method with the same 401", async () => {
    const paths = [
      ...new Set(requestsAbout(ofA.id).map(({ request }) => request.target ?? "/")),
      ...[
        "/",
        "/nothing",
        "/v1",
        "/v1/nothing",
        "/v2",
        "/v3/templates",
        "/sandboxes/",
        "//",
        "/..",
        "/%2e%2e/",
        "/%zz",
        "/%ff",
        "/v1/%zz",
        "/.unreadable",
        "/health/",
        "/health/x",
        "/HEALTH",
        "*",
      ],
    ].filter((path) => !isForAll(path));
    const answers = new Map<string, string[]>();
    await forEachOf(
      paths.flatMap((target) => METHODS.map((method) => ({ method, target }))),
      async ({ method, target }) => {
        const answer = await send({ method, target, headers: [host()] });
        const said = `${answer.status} ${method === "HEAD" ? "" : answer.text}`;
        answers.set(said, [...(answers.get(said) ?? []), `${method} ${target}`]);
      },
    );
    // A volume's content asks for a token of its own, and says so.
    const refusals = ["/sandboxes", "/v1/sandboxes", "/volumecontent/v/dir?path=/"].map(
      async (target) => (await send({ target, headers: [host()] })).text,
    );
    const right = ["", ...(await Promise.all(refusals))].map((text) => `401 ${text}`);
    expect([...answers].filter(([said]) => !right.includes(said))).toEqual([]);
  });

  test("health is the one thing that can be asked", async () => {
    const answer = await send({ target: "/health", headers: [host()] });
    expect([answer.status, answer.text]).toEqual([204, ""]);
    for (const method of ["POST", "PUT", "DELETE", "PATCH"]) {
      expect((await send({ method, target: "/health", headers: [host()] })).status, method).toBe(401);
    }
  });

  test("a key that is wrong, revoked or malformed is none, on every route", async () => {
    const revoked = createKey(server, "revoked");
    revokeKey(server, revoked.id);
    const right = server.apiKey;
    const credentials: readonly HeaderList[] = [
      [["X-API-Key", ""]],
      [["X-API-Key", `e2b_${"0".repeat(40)}`]],
      [["X-API-Key", revoked.key]],
      [["Authorization", `Bearer ${revoked.key}`]],
      [["X-API-Key", right.toUpperCase()]],
      [["X-API-Key", right.slice(0, -1)]],
      [["X-API-Key", `${right}0`]],
      [["X-API-Key", right.slice(4)]],
      [["X-API-Key", `${right}, ${right}`]],
      [["X-API-Key", "x".repeat(10_000)]],
      [["X-API-Key", "\xff\xfe"]],
      [["X-API-Key", "' OR 1=1 --"]],
      [["Authorization", right]],
      [["Authorization", `Basic ${btoa(`${right}:`)}`]],
      [["Authorization", "Bearer "]],
      [["Cookie", `X-API-Key=${right}`]],
      [["X-Access-Token", ofA.token]],
      [["X-API-Key", ofA.token]],
      [["Authorization", `Bearer ${ofA.token}`]],
    ];
    const answers = new Set<string>();
    await forEachOf(
      requestsAbout(ofA.id)
        .filter(({ request }) => !isForAll(request.target))
        .flatMap(({ route, request }) => credentials.map((credential) => ({ route, request, credential }))),
      async ({ request, credential }) => {
        const answer = await send({ ...request, headers: [host(), ...(request.headers ?? []), ...credential] });
        if (answer.status !== 401) answers.add(`${request.method} ${request.target}: ${answer.status}`);
      },
    );
    expect([...answers]).toEqual([]);
  }, 60_000);

  test("a key in the query is none", async () => {
    for (const name of ["api_key", "apiKey", "key", "X-API-Key", "token"]) {
      const answer = await send({ target: `/sandboxes?${name}=${server.apiKey}`, headers: [host()] });
      expect(answer.status, name).toBe(401);
    }
  });

  test("a key that is revoked stops working within a second", async () => {
    const { id, key } = createKey(server, "short-lived");
    const client = createClient(server, key);
    expect((await client.control({ target: "/v2/sandboxes" })).status).toBe(200);
    revokeKey(server, id);
    await expect
      .poll(async () => (await client.control({ target: "/v2/sandboxes" })).status, { timeout: 1000 })
      .toBe(401);
  });

  test("envd of a sandbox answers nobody without its token", async () => {
    const targets = [
      ...routes.envd.map(({ route }) => route),
      ...rpcs.map(({ path }) => `POST ${path}`),
      "GET /",
      "GET /nothing",
      "GET /%zz",
      "PUT /files",
      "DELETE /files",
      "GET /files/compose",
    ];
    const wrong: string[] = [];
    for (const credential of [
      [],
      controlHeaders(server.apiKey).slice(1),
      [["X-Access-Token", ""]],
      [["X-Access-Token", ofB.token]],
      [["X-Access-Token", `${ofA.token}, ${ofA.token}`]],
      [["Authorization", `Bearer ${ofA.token}`]],
    ] as HeaderList[]) {
      for (const line of targets) {
        const [method = "GET", target = "/"] = line.split(" ");
        if (target === "/health") continue;
        const type =
          rpcs.find(({ path }) => path === target)?.kind === "server_streaming"
            ? "application/connect+json"
            : "application/json";
        const answer = await send({
          method,
          target,
          headers: [host(`${ENVD_PORT}-${ofA.id}.${TEST_DOMAIN}`), ["Content-Type", type], ...credential],
          ...(method === "POST" ? { body: type === "application/json" ? "{}" : envelope({}) } : {}),
        });
        if (answer.status !== 401)
          wrong.push(`${line} with ${credential[0]?.[0] ?? "nothing"}: ${answer.status} ${answer.text.slice(0, 80)}`);
      }
    }
    expect(wrong).toEqual([]);
  });
});

describe("two keys", () => {
  /** An answer with the id taken out, so that two of them can be compared. */
  const plain = (answer: RawAnswer, id: string): string => `${answer.status} ${answer.text.replaceAll(id, "ID")}`;
  const stateOf = async (sandbox: TestSandbox) => (await a.control({ target: `/v1/sandboxes/${sandbox.id}` })).text;

  test("one does not reach the other's sandbox by any route, and cannot tell it from none", async () => {
    const paused = await a.create();
    const ended = await a.create();
    await a.run(ofA, "echo hello > /tmp/file");
    await a.control({ method: "POST", target: `/sandboxes/${paused.id}/pause` });
    await a.control({ method: "DELETE", target: `/sandboxes/${ended.id}` });
    for (const sandbox of [ofA, paused, ended]) {
      const before = await stateOf(sandbox);
      const differences: string[] = [];
      const nobodys = new Map(requestsAbout(NOBODY).map(({ route, request }) => [route, request]));
      await forEachOf(
        requestsAbout(sandbox.id).filter(({ route }) => /:(id|sandboxID)\b/.test(route)),
        async ({ route, request }) => {
          const theirs = await b.control(request);
          const none = await b.control(nobodys.get(route) ?? {});
          if (plain(theirs, sandbox.id) !== plain(none, NOBODY))
            differences.push(`${route}: ${plain(theirs, sandbox.id)} / ${plain(none, NOBODY)}`);
          if (theirs.status !== 404 && theirs.status !== 501) differences.push(`${route}: ${theirs.status}`);
        },
      );
      expect(differences).toEqual([]);
      expect(await stateOf(sandbox)).toBe(before);
    }
    await a.control({ method: "DELETE", target: `/sandboxes/${paused.id}` });
  }, 60_000);

  test("lists, counts, metrics and events are each one's own", async () => {
    const ask = async (client: Client, target: string) => {
      const answer = await client.control({ target });
      expect(answer.status, `${target}: ${answer.text}`).toBe(200);
      return answer;
    };
    const targets = [
      ...[
        "/sandboxes",
        "/sandboxes?metadata=owner%3Da",
        "/v2/sandboxes",
        "/v2/sandboxes?state=running,paused",
        "/v2/sandboxes?metadata=owner%3Da",
      ],
      ...[
        "/v1/sandboxes",
        "/v1/sandboxes?status=ended",
        "/v1/sandboxes?metadata=owner%3Da",
        "/v1/events?follow=0",
        "/v1/events?follow=0&after=0",
        "/teams",
        "/templates",
      ],
      `/sandboxes/metrics?sandbox_ids=${ofA.id}`,
    ];
    for (const target of targets) expect((await ask(b, target)).text, target).not.toContain(ofA.id);
    for (const target of targets.filter((target) => /metrics|owner/.test(target))) {
      expect((await ask(a, target)).text, target).toContain(ofA.id);
    }
    expect((await ask(b, "/v2/sandboxes")).headers["x-total-running"]).toBe("1");
    const { sandboxes } = JSON.parse((await ask(b, `/sandboxes/metrics?sandbox_ids=${ofA.id},${ofB.id}`)).text) as {
      sandboxes: object;
    };
    expect(Object.keys(sandboxes).filter((id) => id !== ofB.id)).toEqual([]);
    const templates = JSON.parse((await ask(b, "/templates")).text) as { spawnCount: number }[];
    expect(templates.map(({ spawnCount }) => spawnCount)).toEqual([1]);
    expect((await ask(b, "/teams")).text).not.toContain(server.apiKey);
  });

  test("the place in one's list means nothing in the other's", async () => {
    const second = await a.create();
    const token = (await a.control({ target: "/v2/sandboxes?limit=1" })).headers["x-next-token"] ?? "";
    const { nextCursor } = JSON.parse((await a.control({ target: "/v1/sandboxes?limit=1" })).text) as {
      nextCursor: string;
    };
    expect([token, nextCursor]).not.toContain("");
    for (const target of [
      `/v2/sandboxes?nextToken=${token}`,
      `/v2/sandboxes?order=asc&nextToken=${token}`,
      `/v1/sandboxes?cursor=${nextCursor}`,
    ]) {
      const answer = await b.control({ target });
      expect(answer.status, target).toBe(200);
      for (const id of [ofA.id, second.id]) expect(answer.text, target).not.toContain(id);
    }
    await a.control({ method: "DELETE", target: `/sandboxes/${second.id}` });
  });

  test("nobody hears of the other's events", async () => {
    const stream = await RawConnection.open(server.port);
    await stream.send(requestBytes({ target: "/v1/events", headers: controlHeaders(b.key) }));
    await stream.receive(100);
    const other = await a.create();
    await a.control({ method: "DELETE", target: `/sandboxes/${other.id}` });
    await b.run(ofB, "true");
    await expect.poll(async () => (await stream.receive(1)).toString(), { timeout: 5000 }).toContain("command_ended");
    const heard = (await stream.receive(1)).toString();
    stream.destroy();
    for (const id of [ofA.id, other.id]) expect(heard).not.toContain(id);
  });

  test("an Idempotency-Key is its key's own", async () => {
    const create = (client: Client, token: string, body: object = { templateID: "base" }) =>
      client.control({
        method: "POST",
        target: "/v2/sandboxes",
        headers: [JSON_TYPE, ["Idempotency-Key", token]],
        body: JSON.stringify(body),
      });
    const idOf = (answer: RawAnswer) => (JSON.parse(answer.text) as { sandboxID: string }).sandboxID;
    const [first, again, others] = [await create(a, "same"), await create(a, "same"), await create(b, "same")];
    expect([first.status, again.status, others.status]).toEqual([201, 201, 201]);
    expect(idOf(again)).toBe(idOf(first));
    expect(idOf(others)).not.toBe(idOf(first));
    expect((await create(a, "same", { templateID: "base", timeout: 60 })).status).toBe(409);
    const many = await Promise.all(Array.from({ length: 20 }, () => create(a, "at once")));
    expect(new Set(many.map((answer) => (answer.status === 201 ? idOf(answer) : answer.text))).size).toBe(1);
    for (const answer of [first, ...many.slice(0, 1)])
      await a.control({ method: "DELETE", target: `/sandboxes/${idOf(answer)}` });
    await b.control({ method: "DELETE", target: `/sandboxes/${idOf(others)}` });
  });
});

describe("names, tokens and links", () => {
  const list = rpcCases["/process.Process/List"]?.right ?? {};
  const rpc = (headers: HeaderList): Promise<RawAnswer> =>
    send({
      method: "POST",
      target: "/process.Process/List",
      headers: [...headers, JSON_TYPE],
      body: JSON.stringify(list),
    });
  const byHeader = (id: string, name = "localhost"): HeaderList => [
    host(name),
    ["E2b-Sandbox-Id", id],
    ["E2b-Sandbox-Port", ENVD_PORT],
  ];
  const byName = (id: string): HeaderList => [host(`${ENVD_PORT}-${id}.${TEST_DOMAIN}`)];
  const token = (text: string) => ["X-Access-Token", text] as const;

  test("a token opens its own sandbox, by name and by header, and no other", async () => {
    for (const way of [byHeader, byName, (id: string) => byHeader(id, `sandbox.${TEST_DOMAIN}`)]) {
      expect((await rpc([...way(ofA.id), token(ofA.token)])).status).toBe(200);
      expect((await rpc([...way(ofA.id), token(ofB.token)])).status).toBe(401);
      expect((await rpc([...way(ofB.id), token(ofA.token)])).status).toBe(401);
    }
  });

  test("a name cannot be overruled by headers, nor a header by another", async () => {
    await a.run(ofA, "echo a > /home/user/whose");
    await b.run(ofB, "echo b > /home/user/whose");
    const whose = async (headers: HeaderList) => send({ target: "/files?path=whose", headers });
    const toA: HeaderList = [
      ["E2b-Sandbox-Id", ofA.id],
      ["E2b-Sandbox-Port", ENVD_PORT],
    ];
    expect((await whose([...byName(ofB.id), ...toA, token(ofB.token)])).text).toBe("b\n");
    expect((await whose([...byName(ofB.id), ...toA, token(ofA.token)])).status).toBe(401);
    expect((await whose([...byName(ofA.id), token(ofB.token)])).status).toBe(401);
    expect((await whose([...byHeader(ofB.id), ...toA, token(ofB.token)])).status).toBe(400);
    expect((await whose([host(`api.${TEST_DOMAIN}`), ...toA, token(ofA.token)])).status).toBe(401);
    expect((await whose([host(TEST_DOMAIN), ...toA, token(ofA.token)])).status).toBe(401);
    for (const name of [
      "elsewhere.example",
      `${ENVD_PORT}-${ofA.id}.elsewhere.example`,
      `x.${ENVD_PORT}-${ofA.id}.${TEST_DOMAIN}`,
      `${ENVD_PORT}-${ofA.id}.api.${TEST_DOMAIN}`,
      `x${TEST_DOMAIN}`,
    ]) {
      expect((await whose([host(name), ...toA, token(ofA.token)])).status, name).toBe(400);
    }
  });

  test("a link opens one file of one sandbox in one way", async () => {
    const sign = (path: string, operation: string, secret: string) =>
      `v1_${createHash("sha256").update(`${path}:${operation}::${secret}`).digest("base64").replace(/=+$/, "")}`;
    const link = (signature: string, path = "whose") =>
      `/files?path=${path}&signature=${encodeURIComponent(signature)}`;
    const readA = sign("whose", "read", ofA.token);
    expect((await send({ target: link(readA), headers: byName(ofA.id) })).text).toBe("a\n");
    const refused: readonly [string, RawRequest][] = [
      ["made with the other's token", { target: link(sign("whose", "read", ofB.token)), headers: byName(ofA.id) }],
      ["at the other's sandbox", { target: link(readA), headers: byName(ofB.id) }],
      ["for another file", { target: link(readA, "other"), headers: byName(ofA.id) }],
      ["made with the key", { target: link(sign("whose", "read", server.apiKey)), headers: byName(ofA.id) }],
      [
        "for writing",
        {
          method: "POST",
          target: link(readA),
          headers: [...byName(ofA.id), ["Content-Type", "application/octet-stream"]],
          body: "x",
        },
      ],
    ];
    for (const [about, request] of refused) expect((await send(request)).status, about).toBe(401);
  });
});

describe("limits of a key", () => {
  const create = (client: Client, body: object = {}) =>
    client.control({
      method: "POST",
      target: "/v2/sandboxes",
      headers: [JSON_TYPE],
      body: JSON.stringify({ templateID: "base", ...body }),
    });
  const killAll = async (client: Client) => {
    const listed = JSON.parse((await client.control({ target: "/v2/sandboxes" })).text) as { sandboxID: string }[];
    for (const { sandboxID } of listed) await client.control({ method: "DELETE", target: `/sandboxes/${sandboxID}` });
  };
  function expectLimit(answer: RawAnswer, ...numbers: readonly string[]): void {
    expect(answer.status, answer.text).toBe(429);
    expect(answer.headers["retry-after"]).toMatch(/^[1-9][0-9]*$/);
    for (const number of numbers) expect(answer.text).toContain(number);
  }

  test("on sandboxes hold for creates at the same time, and for paused ones", async () => {
    const client = createClient(server, createKey(server, "three", "--sandboxes", "3").key);
    const answers = await Promise.all(Array.from({ length: 20 }, () => create(client)));
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(3);
    for (const answer of answers.filter(({ status }) => status !== 201)) expectLimit(answer, "3 sandboxes");
    const { sandboxID } = JSON.parse(answers.find(({ status }) => status === 201)?.text ?? "{}") as {
      sandboxID: string;
    };
    await client.control({ method: "POST", target: `/sandboxes/${sandboxID}/pause` });
    expectLimit(await create(client), "3 sandboxes");
    expectLimit(
      await client.control({ method: "POST", target: "/v1/sandboxes", headers: [JSON_TYPE], body: "{}" }),
      "3 sandboxes",
    );
    await client.control({ method: "DELETE", target: `/sandboxes/${sandboxID}` });
    expect((await create(client)).status).toBe(201);
    await killAll(client);
  });

  test("on memory hold for creates and for resizes at the same time", async () => {
    const client = createClient(server, createKey(server, "memory", "--memory", "1g").key);
    const answers = await Promise.all(Array.from({ length: 6 }, () => create(client)));
    const made = answers.filter(({ status }) => status === 201);
    expect(made).toHaveLength(2);
    for (const answer of answers.filter(({ status }) => status !== 201)) expectLimit(answer, "1 GiB", "512 MiB");
    const [first, second] = made.map(({ text }) => (JSON.parse(text) as { sandboxID: string }).sandboxID);
    const resize = (id: string | undefined, memoryBytes: number) =>
      client.control({
        method: "PATCH",
        target: `/v1/sandboxes/${id}/limits`,
        headers: [JSON_TYPE],
        body: JSON.stringify({ memoryBytes }),
      });
    expectLimit(await resize(first, 513 * 1024 * 1024), "1 GiB");
    expect((await resize(second, 256 * 1024 * 1024)).status).toBe(200);
    const grown = await Promise.all(Array.from({ length: 5 }, () => resize(first, 768 * 1024 * 1024)));
    expect(grown.some(({ status }) => status === 200)).toBe(true);
    expectLimit(await create(client), "1 GiB");
    expect((await resize(second, 257 * 1024 * 1024)).status).toBe(429);
    await killAll(client);
    // What was counted is given back exactly.
    const again = await Promise.all(Array.from({ length: 4 }, () => create(client)));
    expect(again.filter(({ status }) => status === 201)).toHaveLength(2);
    await killAll(client);
  }, 60_000);

  test("on requests hold, and another key does not notice", async () => {
    const client = createClient(server, createKey(server, "slow", "--rate", "5").key);
    const answers = await Promise.all(Array.from({ length: 40 }, () => client.control({ target: "/v2/sandboxes" })));
    const refused = answers.filter(({ status }) => status !== 200);
    expect(refused.length).toBeGreaterThan(20);
    for (const answer of refused) expectLimit(answer, "5 requests a second");
    expect((await b.control({ target: "/v2/sandboxes" })).status).toBe(200);
    await sleep(Number(refused[0]?.headers["retry-after"]) * 1000);
    expect((await client.control({ target: "/v2/sandboxes" })).status).toBe(200);
  });
});

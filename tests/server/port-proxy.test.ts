import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { type IncomingHttpHeaders, request as openRequest } from "node:http";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { shell } from "../helpers/use-engine.js";
import { type ServedSandbox, serveOne, TOKEN, TRAFFIC_TOKEN } from "./serve-one.js";

const MIB = 1024 * 1024;
let served: ServedSandbox;

beforeAll(async () => {
  served = await serveOne({
    limits: {
      memoryBytes: 256 * MIB,
      pids: 128,
      cpuMillis: 2000,
      diskBytes: 64 * MIB,
      outputBytes: MIB,
      wallMs: undefined,
    },
  });
  const program = readFileSync(new URL("any-server.py", import.meta.url));
  await served.sandbox.files.write("/tmp/server.py", program);
  await served.sandbox.start({ argv: ["python3", "/tmp/server.py", "127.0.0.1", "3000"] });
  while ((await call("/echo")).status !== 200) await sleep(50);
});
afterAll(() => served.close());

function address(port = 3000): Record<string, string> {
  return { "e2b-sandbox-id": served.sandbox.id, "e2b-sandbox-port": String(port) };
}

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  readonly text: string;
  readonly trailers: NodeJS.Dict<string>;
  readonly information: readonly number[];
}

interface CallOptions {
  readonly method?: string;
  readonly port?: number;
  readonly headers?: Record<string, string>;
  readonly body?: Buffer | string;
  readonly trailers?: Record<string, string>;
  readonly named?: boolean;
}

function call(path: string, options: CallOptions = {}): Promise<Answer> {
  const { method = "GET", port = 3000, headers = {}, body, trailers } = options;
  const named = { host: `${port}-${served.sandbox.id}.box.test:${served.port}` };
  return new Promise((resolve, reject) => {
    const information: number[] = [];
    const request = openRequest(
      {
        host: "127.0.0.1",
        port: served.port,
        method,
        path,
        headers: { ...(options.named === true ? named : address(port)), ...headers },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", reject);
        response.on("end", () => {
          const all = Buffer.concat(chunks);
          const { statusCode: status = 0, headers, rawHeaders, trailers } = response;
          resolve({ status, headers, rawHeaders, body: all, text: all.toString(), trailers, information });
        });
      },
    );
    request.on("information", ({ statusCode }) => information.push(statusCode));
    request.on("error", reject);
    if (body !== undefined && trailers !== undefined) {
      request.write(body);
      request.addTrailers(trailers);
      request.end();
    } else request.end(body);
  });
}

interface Echo {
  readonly method: string;
  readonly path: string;
  readonly headers: [string, string][];
  readonly length: number;
  readonly sha256: string;
  readonly trailer: string;
}

async function echo(options: CallOptions = {}, path = "/echo"): Promise<Echo> {
  const { status, text } = await call(path, options);
  expect(status).toBe(200);
  return JSON.parse(text) as Echo;
}

describe("a request to a port", () => {
  test("arrives as it was sent, by name as well as by header", async () => {
    const named = await echo({ named: true, headers: { "X-Mine": "1" } }, "/echo?a=%20b&c");
    expect(named.path).toBe("/echo?a=%20b&c");
    const headers = Object.fromEntries(named.headers.map(([name, value]) => [name.toLowerCase(), value]));
    const host = `3000-${served.sandbox.id}.box.test:${served.port}`;
    expect(headers).toMatchObject({
      host,
      "x-mine": "1",
      "x-forwarded-for": "127.0.0.1",
      "x-forwarded-host": host,
      "x-forwarded-proto": "http",
    });
  });

  test("carries no secrets inside", async () => {
    const { headers } = await echo({
      headers: { "X-Access-Token": TOKEN, "X-API-Key": "e2b_00", "E2B-Traffic-Access-Token": TRAFFIC_TOKEN },
    });
    expect(JSON.stringify(headers)).not.toMatch(/token|e2b/i);
  });

  test("has its host masked if the sandbox wants that", async () => {
    served.network.settings = { maskRequestHost: `localhost:${"$"}{PORT}` };
    const { headers } = await echo();
    served.network.settings = null;
    expect(headers).toContainEqual(["Host", "localhost:3000"]);
  });

  test("takes its body along, with a length, in chunks and with trailers", async () => {
    const body = randomBytes(5 * MIB);
    const sha256 = createHash("sha256").update(body).digest("hex");
    expect(await echo({ method: "POST", body, headers: { "content-length": String(body.length) } })).toMatchObject({
      sha256,
    });
    const chunked = await echo({
      method: "PUT",
      body,
      trailers: { "X-After": "all" },
      headers: { "transfer-encoding": "chunked", trailer: "X-After" },
    });
    expect(chunked).toMatchObject({ sha256, trailer: "X-After: all\r\n" });
    expect(await echo({ method: "POST" })).toMatchObject({ length: 0, method: "POST" });
    expect(await echo({ method: "DELETE", body: "gone", headers: { "content-length": "4" } })).toMatchObject({
      length: 4,
    });
  });

  test("is answered with the status and headers from inside", async () => {
    const { rawHeaders, headers } = await call("/echo");
    expect(rawHeaders.filter((text) => text === "Set-Cookie")).toHaveLength(2);
    expect(headers).toMatchObject({ "x-inside": "yes", connection: "keep-alive" });
    expect(headers).not.toHaveProperty("access-control-allow-origin");
    for (const status of [204, 304, 404, 500]) expect((await call(`/status?${status}`)).status).toBe(status);
    const head = await call("/echo", { method: "HEAD" });
    expect(head.body).toHaveLength(0);
    expect(Number(head.headers["content-length"])).toBeGreaterThan(0);
    expect(
      (await call("/echo", { method: "OPTIONS", headers: { origin: "x", "access-control-request-method": "GET" } }))
        .headers,
    ).toHaveProperty("x-inside");
  });

  test("streams large answers", async () => {
    const { body } = await call("/big");
    expect(body.length).toBe(64 * MIB);
  });

  test("delivers events as they happen, and what comes after them", async () => {
    const start = performance.now();
    const times: number[] = [];
    const trailers = await new Promise((resolve) => {
      openRequest(`${served.url}/events`, { headers: address() }, (response) => {
        response.on("data", () => times.push(performance.now() - start));
        response.on("end", () => resolve(response.trailers));
      }).end();
    });
    expect(times.length).toBe(5);
    expect((times[4] ?? 0) - (times[0] ?? 0)).toBeGreaterThan(500);
    expect(trailers).toEqual({ "x-trailer": "done" });
  });

  test("passes early hints on", async () => {
    expect(await call("/hints")).toMatchObject({ information: [103], text: "after hints" });
  });

  test("understands an old server, and one that lies about its length", async () => {
    expect(await call("/old")).toMatchObject({ status: 200, text: "until the end" });
    const lie = await call("/lie").catch((error: unknown) => error as Error);
    if (lie instanceof Error) throw lie;
    expect([lie.status, lie.text]).toSatisfy(
      ([status, text]) => (status === 200 && text === "hello") || status === 502,
    );
    expect(lie.headers["content-length"]).not.toBe("3");
  });

  test("that breaks inside breaks outside", async () => {
    await expect(call("/broken")).rejects.toThrow();
    expect(await call("/silent")).toMatchObject({ status: 502 });
  });

  test("may be answered before its body is sent", async () => {
    const answer = await new Promise<number>((resolve, reject) => {
      const request = openRequest(`${served.url}/early`, { method: "POST", headers: address() }, (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      });
      request.on("error", reject);
      request.write(Buffer.alloc(MIB));
    });
    expect(answer).toBe(413);
  });

  test("waits for the word to go on", async () => {
    const answer = await new Promise<Echo>((resolve, reject) => {
      const request = openRequest(
        `${served.url}/echo`,
        { method: "POST", headers: { ...address(), expect: "100-continue", "content-length": "5" } },
        (response) => {
          let text = "";
          response.on("data", (chunk) => {
            text += String(chunk);
          });
          response.on("end", () => resolve(JSON.parse(text) as Echo));
        },
      );
      request.on("error", reject);
      request.on("continue", () => request.end("hello"));
      request.flushHeaders();
    });
    expect(answer.length).toBe(5);
  });

  test("that is given up is given up inside", async () => {
    const before = await openInside();
    const requests = Array.from({ length: 5 }, () => openRequest(`${served.url}/never`, { headers: address() }));
    for (const request of requests) request.on("error", () => {}).end();
    await expect.poll(openInside).toBe(before + 5);
    for (const request of requests) request.destroy();
    await expect.poll(openInside).toBe(before);
    expect(served.dispatcher.activeSandboxRequests).toBe(0);
  });
});

async function openInside(): Promise<number> {
  const { stdout } = await shell(served.sandbox, "awk '$2 ~ /:0BB8$/ && $4 == \"01\"' /proc/net/tcp | wc -l");
  return Number(stdout);
}

describe("what cannot be reached", () => {
  test("a closed port", async () => {
    const { status, text, headers } = await call("/", { port: 3999 });
    expect(status).toBe(502);
    expect(text).toBe(
      JSON.stringify({
        sandboxId: served.sandbox.id,
        message: "The sandbox is running but port is not open",
        port: 3999,
        code: 502,
      }),
    );
    expect(headers["content-type"]).toBe("application/json; charset=utf-8");
    const page = await call("/", { port: 3999, headers: { accept: "text/html,*/*" } });
    expect(page.text).toContain("Nothing listens on port 3999");
    expect(page.headers["content-type"]).toBe("text/html; charset=utf-8");
  });

  test("a sandbox that is not there", async () => {
    const headers = { "e2b-sandbox-id": "iother", "e2b-sandbox-port": "49983" };
    const response = await fetch(`${served.url}/health`, { headers });
    expect(response.status).toBe(502);
    expect(await response.text()).toBe('{"sandboxId":"iother","message":"The sandbox was not found","code":502}');
    expect(response.headers.get("access-control-allow-origin")).toBe("*");
  });

  test("a sandbox that has ended says how", async () => {
    const ending = {
      sandboxId: served.sandbox.id,
      cause: { kind: "timed_out", limitMs: 1 },
      usage: { memoryPeakBytes: null, cpuMs: 0, wallMs: 0, pidsPeak: null },
      message: "It reached <its> end.",
    } as const;
    served.found = { kind: "missing", ending, endedAt: new Date() };
    const health = (await (await fetch(`${served.url}/health`, { headers: address(49983) })).json()) as object;
    const listed = (await (
      await fetch(`${served.url}/process.Process/List`, { method: "POST", headers: address(49983) })
    ).json()) as object;
    const page = await call("/", { headers: { accept: "text/html" } });
    served.found = undefined;
    const facts = { sandboxId: served.sandbox.id, code: 502, ending: ending.message, cause: ending.cause };
    expect(health).toEqual({ ...facts, message: "The sandbox was not found" });
    expect(listed).toEqual({ ...facts, message: "The sandbox was not found. It reached <its> end." });
    expect(page.text).toContain("It reached &lt;its&gt; end.");
  });

  test("a sandbox that is paused or busy", async () => {
    served.found = { kind: "paused", wakeable: false, row: served.live.row };
    expect(await call("/")).toMatchObject({ status: 502 });
    served.found = { kind: "busy" };
    const busy = await call("/");
    served.found = undefined;
    expect(busy).toMatchObject({ status: 409, headers: { "retry-after": "1" } });
  });

  test("a private port without its token", async () => {
    served.network.allowPublicTraffic = false;
    const none = await call("/echo");
    const wrong = await call("/echo", { headers: { "e2b-traffic-access-token": "x" } });
    const right = await call("/echo", { headers: { "e2b-traffic-access-token": TRAFFIC_TOKEN } });
    const envd = await fetch(`${served.url}/health`, { headers: address(49983) });
    served.network.allowPublicTraffic = true;
    expect([none.status, wrong.status, right.status, envd.status]).toEqual([403, 403, 200, 204]);
    expect(JSON.parse(none.text)).toEqual({
      sandboxId: served.sandbox.id,
      message: "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing",
      code: 403,
    });
  });

  test("a name that is none", async () => {
    const host = (name: string) => call("/", { named: true, headers: { host: name } });
    expect((await host("www.box.test")).text).toBe('{"message":"Invalid host","code":400}');
    expect((await host("80-a_b.box.test")).text).toBe('{"message":"Invalid sandbox ID","code":400}');
    expect((await host("api.box.test")).text).toBe('{"control":"/"}');
  });
});

/** Bytes on the wire, for what no client library would send. */
function sendRaw(text: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(served.port, "127.0.0.1", () => socket.write(text));
    let answer = "";
    socket.on("data", (chunk) => {
      answer += chunk.toString("latin1");
    });
    socket.on("error", () => {});
    socket.on("close", () => resolve(answer));
    setTimeout(() => socket.destroy(), 3000).unref();
  });
}

describe("on the wire", () => {
  const head = () => `E2b-Sandbox-Id: ${served.sandbox.id}\r\nE2b-Sandbox-Port: 3000\r\n`;

  test("two Host headers, and a target that contradicts the Host, are refused", async () => {
    expect(
      await sendRaw(`GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n`),
    ).toContain("400");
    expect(await sendRaw(`GET http://evil/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`)).toContain(
      "Invalid host",
    );
    const same = await sendRaw(
      `GET http://localhost/echo?x HTTP/1.1\r\nHost: localhost\r\n${head()}Connection: close\r\n\r\n`,
    );
    expect(same).toContain('"path": "/echo?x"');
  });

  test("a length beside chunks does not get through", async () => {
    const answer = await sendRaw(
      `POST /echo HTTP/1.1\r\nHost: localhost\r\n${head()}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1.1 400/);
  });

  test("a coding that is not understood does not get through", async () => {
    const answer = await sendRaw(
      `POST /echo HTTP/1.1\r\nHost: localhost\r\n${head()}Transfer-Encoding: gzip, chunked\r\nConnection: close\r\n\r\n0\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1.1 501/);
  });

  test("one connection serves requests to different places in turn", async () => {
    const answer = await sendRaw(
      `POST /files HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: ${served.sandbox.id}\r\nE2b-Sandbox-Port: 49983\r\nContent-Length: 5\r\n\r\nhello` +
        `GET /echo HTTP/1.1\r\nHost: localhost\r\n${head()}\r\n` +
        `GET /here HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
    );
    expect([...answer.matchAll(/HTTP\/1.1 (\d+)/g)].map(([, status]) => status)).toEqual(["401", "200", "200"]);
    expect(answer).toContain('{"control":"/here"}');
  });

  test("who waits for the word to go on and is refused is not kept waiting", async () => {
    const answer = await sendRaw(
      "POST /files HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: iother\r\nE2b-Sandbox-Port: 49983\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    );
    expect(answer).toMatch(/^HTTP\/1.1 502/);
    expect(answer).toMatch(/connection: close/i);
  });
});

describe("a WebSocket", () => {
  const open = (headers: Record<string, string> = {}, port = 3000) =>
    new WebSocket(`ws://127.0.0.1:${served.port}/ws`, { headers: { ...address(port), ...headers } });

  test("goes both ways", async () => {
    const socket = open();
    await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
    for (const text of ["one", "two", "x".repeat(70_000)]) {
      socket.send(text);
      const [data] = await new Promise<[Buffer]>((resolve) =>
        socket.once("message", (...args) => resolve(args as unknown as [Buffer])),
      );
      expect(data.toString()).toBe(text);
    }
    expect(served.dispatcher.activeSandboxRequests).toBe(1);
    socket.close();
    await new Promise((resolve) => socket.once("close", resolve));
    await expect.poll(() => served.dispatcher.activeSandboxRequests).toBe(0);
  });

  test.each([
    ["refused inside", { "X-Refuse": "1" }, 3000, 401],
    ["to a closed port", {}, 3999, 502],
    ["to envd", {}, 49983, 400],
  ])("%s is answered like a request", async (_name, headers, port, status) => {
    const socket = open(headers, port);
    const answer = await new Promise((resolve) => {
      socket.once("unexpected-response", (_request, response) => resolve(response.statusCode));
      socket.on("error", () => {});
    });
    expect(answer).toBe(status);
    await expect.poll(() => served.dispatcher.activeSandboxRequests).toBe(0);
  });
});

describe("when the sandbox stops running", () => {
  test("every connection to it is cut", async () => {
    const socket = new WebSocket(`ws://127.0.0.1:${served.port}/ws`, { headers: address() });
    await new Promise((resolve) => socket.once("open", resolve));
    const closed = new Promise((resolve) => socket.once("close", resolve));
    const never = expect(call("/never")).rejects.toThrow();
    await sleep(100);
    expect(served.dispatcher.activeSandboxRequests).toBe(2);
    served.found = { kind: "paused", wakeable: false, row: served.live.row };
    served.leave();
    await Promise.all([closed, never]);
    await expect.poll(() => served.dispatcher.activeSandboxRequests).toBe(0);
    served.found = undefined;
  });
});

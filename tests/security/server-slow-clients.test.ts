/** Clients that do not read, do not finish, or do nothing at all: they cost the server little, and others nothing. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  envelope,
  exchangeBytes,
  type RawAnswer,
  RawConnection,
  type RawRequest,
  requestBytes,
  requestHead,
} from "../helpers/raw-http.js";
import { patienceMs } from "../helpers/scale.js";
import { useServer } from "../helpers/use-server.js";
import {
  type Client,
  controlHeaders,
  createClient,
  envdHeaders,
  expectWell,
  JSON_TYPE,
  portHeaders,
  residentBytes,
  type TestSandbox,
} from "./server-client.js";

const MIB = 1024 * 1024;
const CLIENTS = 50;
/** For all of them together. Without a bound they would take gigabytes. */
const MOST_GROWTH_BYTES = 128 * MIB;
const IDLE_CONNECTIONS = 3000;
const MOST_IDLE_GROWTH_BYTES = 96 * MIB;
const BODY_LIMIT_MS = 30_000;
const PORT = 8000;
const STREAM = ["Content-Type", "application/connect+json"] as const;
const OCTETS = ["Content-Type", "application/octet-stream"] as const;

/** For a command of each client, and a thread of the program that answers them. Two of these fit on a small host. */
const SANDBOX_PIDS = "120";

const server = useServer({ args: ["--key-requests-per-second", "none", "--sandbox-pids", SANDBOX_PIDS] });
const open: RawConnection[] = [];
let client: Client;
let sandbox: TestSandbox;
let pid = 0;
type Dripped = Promise<{ readonly answer: RawAnswer | undefined; readonly tookMs: number }>;
let drip: Readonly<Record<"api" | "rpc", Dripped>>;

const ENDLESS_SERVER = String.raw`
import socket, threading
server = socket.create_server(("127.0.0.1", ${PORT}), backlog=200)
def endless(connection):
    try:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True: connection.sendall(b"x" * 65536)
    except OSError: pass
while True: threading.Thread(target=endless, args=(server.accept()[0],), daemon=True).start()
`;

beforeAll(async () => {
  pid = server.pid;
  client = createClient(server, server.apiKey);
  sandbox = await client.create();
  await client.run(sandbox, "truncate -s 200M /home/user/big");
  await client.control({
    method: "POST",
    target: `/v1/sandboxes/${sandbox.id}/commands`,
    headers: [JSON_TYPE],
    body: JSON.stringify({ argv: ["python3", "-c", ENDLESS_SERVER] }),
  });
  drip = {
    api: sendDrops({ method: "POST", target: "/v2/sandboxes", headers: [...controlHeaders(server.apiKey), JSON_TYPE] }),
    rpc: sendDrops({ method: "POST", target: "/process.Process/List", headers: [...envdHeaders(sandbox), JSON_TYPE] }),
  };
}, 60_000);

afterEach(async () => {
  for (const connection of open.splice(0)) connection.destroy();
  await expectWell(server, pid);
});

/** A body that comes in drops, from the first test to the last. */
async function sendDrops(request: RawRequest): Dripped {
  const started = Date.now();
  const connection = await RawConnection.open(server.port);
  await connection.send(
    requestHead({ ...request, headers: [...(request.headers ?? []), ["Content-Length", 1000]] }),
    "{",
  );
  const timer = setInterval(() => void connection.send(" "), 500);
  try {
    // Looked at by the last tests: until then nobody must trip over it.
    const answer = await connection.answer({ timeoutMs: BODY_LIMIT_MS + patienceMs(5000) }).catch(() => undefined);
    return { answer, tookMs: Date.now() - started };
  } finally {
    clearInterval(timer);
    connection.destroy();
  }
}

/** Opens so many connections that have said this. */
async function openMany(count: number, ...said: readonly (string | Uint8Array)[]): Promise<RawConnection[]> {
  const connections: RawConnection[] = [];
  for (let index = 0; index < count; index += 1) {
    const connection = await RawConnection.open(server.port);
    open.push(connection);
    connections.push(connection);
    if (said.length > 0) void connection.send(...said);
  }
  return connections;
}

/** What the server's memory grows by at most while this lasts. */
async function growthOf(work: () => Promise<void>, forMs = 1000): Promise<number> {
  const before = residentBytes(pid);
  let peak = before;
  const timer = setInterval(() => {
    peak = Math.max(peak, residentBytes(pid));
  }, 50);
  try {
    await work();
    await sleep(forMs);
    await expectPrompt();
  } finally {
    clearInterval(timer);
  }
  return peak - before;
}

/** That others are served as ever. */
async function expectPrompt(): Promise<void> {
  const started = Date.now();
  const answer = await client.control({ target: `/sandboxes/${sandbox.id}` });
  expect(answer.status, answer.text).toBe(200);
  expect(Date.now() - started).toBeLessThan(patienceMs(1000));
}

describe("a client that never reads", () => {
  const cases: Readonly<Record<string, () => RawRequest>> = {
    "an endless output over envd": () => ({
      method: "POST",
      target: "/process.Process/Start",
      headers: [...envdHeaders(sandbox), STREAM],
      body: envelope({ process: { cmd: "/usr/bin/yes" } }),
    }),
    "an endless output over our own API": () => ({
      method: "POST",
      target: `/v1/sandboxes/${sandbox.id}/run`,
      headers: [...controlHeaders(server.apiKey), JSON_TYPE],
      body: JSON.stringify({ argv: ["/usr/bin/yes"] }),
    }),
    "a download of 200 MB over envd": () => ({ target: "/files?path=big", headers: envdHeaders(sandbox) }),
    "a packed download of 200 MB": () => ({
      target: "/files?path=big",
      headers: [...envdHeaders(sandbox), ["Accept-Encoding", "gzip"]],
    }),
    "a download over our own API": () => ({
      target: `/v1/sandboxes/${sandbox.id}/files?path=/home/user/big`,
      headers: controlHeaders(server.apiKey),
    }),

    "an endless answer of a port": () => ({ target: "/", headers: portHeaders(sandbox.id, PORT) }),
  };

  test.each(Object.keys(cases))("costs little of the server's memory: %s", async (name) => {
    const request = cases[name]?.() ?? {};
    const growth = await growthOf(async () => {
      const [first] = await openMany(CLIENTS, requestBytes(request));
      // One of them looks whether there is anything to read at all.
      const start = await first?.receive(100);
      expect(start?.toString("latin1")).toMatch(/^HTTP\/1\.1 200/);
      first?.socket.pause();
    });
    expect(growth).toBeLessThan(MOST_GROWTH_BYTES);
    for (const connection of open.splice(0)) connection.destroy();
    await client.run(sandbox, "pkill -x yes; true");
  });

  test("costs little of the server's memory: watching files that change all the time", async () => {
    const growth = await growthOf(async () => {
      await openMany(
        5,
        requestBytes({
          method: "POST",
          target: "/filesystem.Filesystem/WatchDir",
          headers: [...envdHeaders(sandbox), STREAM],
          body: envelope({ path: "/tmp", recursive: true, includeEntry: true }),
        }),
      );
      await openMany(
        5,
        requestBytes({
          target: `/v1/sandboxes/${sandbox.id}/files/watch?path=/tmp`,
          headers: controlHeaders(server.apiKey),
        }),
      );
      await client.run(
        sandbox,
        `python3 -c '
import os
for n in range(15000):
    open("/tmp/" + "x" * 200 + str(n % 10), "w").close()
'`,
      );
    });
    expect(growth).toBeLessThan(MOST_GROWTH_BYTES);
  }, 60_000);
});

describe("a client that stops in the middle", () => {
  const half = "x".repeat(MIB);
  const cases: Readonly<Record<string, () => RawRequest>> = {
    "an upload over envd": () => ({
      method: "POST",
      target: "/files?path=/tmp/half",
      headers: [...envdHeaders(sandbox), OCTETS, ["Content-Length", 100 * MIB]],
    }),
    "an upload over our own API": () => ({
      method: "PUT",
      target: `/v1/sandboxes/${sandbox.id}/files?path=/tmp/half`,
      headers: [...controlHeaders(server.apiKey), ["Content-Length", 100 * MIB]],
    }),
    "a request to a port": () => ({
      method: "POST",
      target: "/",
      headers: [...portHeaders(sandbox.id, PORT), ["Content-Length", 100 * MIB]],
    }),
    "a body of the API": () => ({
      method: "POST",
      target: "/v2/sandboxes",
      headers: [...controlHeaders(server.apiKey), JSON_TYPE, ["Content-Length", MIB]],
    }),
  };

  test.each(Object.keys(cases))("costs little of the server's memory: %s", async (name) => {
    const growth = await growthOf(async () => {
      await openMany(CLIENTS, requestHead(cases[name]?.() ?? {}), half.slice(0, MIB - 1));
    });
    expect(growth).toBeLessThan(MOST_GROWTH_BYTES);
  });

  test("costs no more than its message: an RPC", async () => {
    const head = requestHead({
      method: "POST",
      target: "/process.Process/SendInput",
      headers: [...envdHeaders(sandbox), JSON_TYPE, ["Content-Length", 8 * MIB]],
    });
    const growth = await growthOf(async () => {
      await openMany(CLIENTS, head, "x".repeat(7 * MIB));
    });
    expect(growth).toBeLessThan(CLIENTS * 8 * MIB + MOST_GROWTH_BYTES);
  });

  test("makes nothing and breaks nothing", async () => {
    const count = async () => (await client.control({ target: "/v2/sandboxes" })).headers["x-total-running"];
    const before = await count();
    const whole = requestBytes({
      method: "POST",
      target: "/v2/sandboxes",
      headers: [...controlHeaders(server.apiKey), JSON_TYPE],
      body: '{"templateID":"base"}',
    });
    for (let length = 0; length < whole.length; length += 5) {
      const [connection] = await openMany(1, whole.subarray(0, length));
      await sleep(1);
      connection?.destroy();
    }
    await sleep(200);
    expect(await count()).toBe(before);
  });
});

describe("a client that asks for much", () => {
  test("costs little of the server's memory: a history of long commands", async () => {
    const start = requestBytes({
      method: "POST",
      target: `/v1/sandboxes/${sandbox.id}/commands`,
      headers: [...controlHeaders(server.apiKey), JSON_TYPE],
      body: JSON.stringify({ argv: ["/bin/true", "x".repeat(110_000), "y".repeat(110_000)] }),
    });
    for (let count = 0; count < 40; count += 1) expect((await exchangeBytes(server.port, start))?.status).toBe(201);
    const growth = await growthOf(async () => {
      for (const target of [
        "/v1/events?follow=0",
        `/v1/sandboxes/${sandbox.id}/commands`,
        `/v2/sandboxes/${sandbox.id}/logs`,
      ]) {
        const asked = Array.from({ length: 10 }, () => client.control({ target }));
        for (const answer of await Promise.all(asked)) expect(answer.body.length, target).toBeLessThan(4 * MIB);
      }
    });
    expect(growth).toBeLessThan(MOST_GROWTH_BYTES);
  }, 60_000);
});

describe("a client that does nothing", () => {
  test(`costs little, even ${IDLE_CONNECTIONS} times`, async () => {
    const growth = await growthOf(async () => {
      await openMany(IDLE_CONNECTIONS - 100);
      await openMany(100, "GET /sandboxes HTTP/1.1\r\nHost: localhost\r\n");
    }, 500);
    expect(growth).toBeLessThan(MOST_IDLE_GROWTH_BYTES);
    const other = await client.create();
    expect(await client.run(other, "echo still here")).toBe("still here\n");
  }, 60_000);
});

test.each(["api", "rpc"] as const)(
  "a body that comes in drops is waited for so long and no longer: %s",
  async (plane) => {
    const { answer, tookMs } = await drip[plane];
    expect(tookMs).toBeGreaterThan(BODY_LIMIT_MS - 1000);
    expect(tookMs).toBeLessThan(BODY_LIMIT_MS + patienceMs(3000));
    expect(answer?.status, answer?.text).toBe(408);
    expect(answer?.text).toContain("body");
  },
  120_000,
);

test("the server has logged no fault of its own", () => {
  expect(server.log.split("\n").filter((line) => /"level":(50|60)/.test(line))).toEqual([]);
});

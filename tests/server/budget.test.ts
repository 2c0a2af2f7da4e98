/** The host's budget, as users of the server meet it: who waits, who is told, who goes first, what a sudden death leaves. */
import { setTimeout as sleep } from "node:timers/promises";
import type { ErrorBody, EventList, HostInfo, SandboxInfo, SandboxList } from "@holdfast/protocol";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { patienceMs } from "../helpers/scale.js";
import { makeSmallHost } from "../helpers/small-host.js";
import { useServer } from "../helpers/use-server.js";

const MIB = 1024 * 1024;
/** Room for two of these and not for three. */
const SIZE = 384 * MIB;
const ROOM_MIB = 1000;
const LONG_MS = 60_000;

const RESERVE_MIB = 100;
const small = makeSmallHost({ memoryBytes: (ROOM_MIB + RESERVE_MIB) * MIB });
// Before the server's own, because hooks run in reverse.
afterAll(() => small.remove());
const server = useServer({
  // Only what is asked for here is to be promised.
  args: ["--warm-total", "0"],
  env: { HOLDFAST_CGROUP_PARENT: small.parent, HOLDFAST_SERVE_RESERVE_MEMORY_MB: String(RESERVE_MIB) },
});

interface Answer<T> {
  readonly status: number;
  readonly headers: Headers;
  readonly body: T;
}

const create = (more: object = {}, memoryBytes = SIZE): Promise<Answer<SandboxInfo>> =>
  server.call("POST", "/v1/sandboxes", { limits: { memoryBytes }, timeoutMs: 600_000, ...more });
const refused = (more: object = {}, memoryBytes = SIZE): Promise<Answer<ErrorBody>> =>
  create(more, memoryBytes) as Promise<Answer<unknown>> as Promise<Answer<ErrorBody>>;
const kill = (id: string) => server.call<ErrorBody | null>("DELETE", `/v1/sandboxes/${id}`);
const host = async (): Promise<HostInfo> => (await server.call<HostInfo>("GET", "/v1/host")).body;

async function creating(): Promise<SandboxInfo[]> {
  const { body } = await server.call<SandboxList>("GET", "/v1/sandboxes?status=creating");
  return [...body.sandboxes];
}

async function waitingEvents(id: string): Promise<EventList["events"]> {
  const { body } = await server.call<EventList>("GET", `/v1/sandboxes/${id}/events?follow=0`);
  return body.events.filter(({ kind }) => kind === "waiting_for_memory");
}

async function fill(): Promise<string[]> {
  const made = await Promise.all([create(), create()]);
  expect(made.map(({ status }) => status)).toEqual([201, 201]);
  return made.map(({ body }) => body.id);
}

afterEach(async () => {
  const { body } = await server.call<SandboxList>("GET", "/v1/sandboxes");
  await Promise.all(body.sandboxes.map(({ id }) => kill(id)));
  await expect.poll(async () => (await host()).memory.promisedBytes, { timeout: patienceMs(10_000) }).toBe(0);
});

describe("a host that is full", () => {
  test("says who has what of it", async () => {
    const ids = await fill();
    const { memory, reservations, waiting } = await host();
    expect(waiting).toBe(0);
    expect(reservations.map(({ id }) => id).sort()).toEqual(ids.sort());
    expect(reservations.every(({ kind, memoryBytes }) => kind === "sandbox" && memoryBytes >= SIZE)).toBe(true);
    expect(memory.promisedBytes).toBe(reservations.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0));
    expect(memory.promisedBytes).toBeLessThanOrEqual(memory.roomBytes);
    expect(memory.reserveBytes).toBe(RESERVE_MIB * MIB);
  });

  test("refuses at once who will not wait, with the numbers and when to come back", async () => {
    await fill();
    const { status, headers, body } = await refused({ waitMs: 0 });
    expect(status).toBe(429);
    expect(body).toMatchObject({ code: "host_capacity", details: { resource: "memoryBytes" } });
    expect(body.message).toMatch(/needed, .* free/);
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
  });

  test("refuses at once what it could never carry, whoever would wait for it", async () => {
    const { status, body } = await refused({ waitMs: LONG_MS }, 2 ** 45);
    expect(status).toBe(400);
    expect(body).toMatchObject({ code: "invalid_argument", details: { field: "limits.memoryBytes" } });
  });

  test("lets others wait, tells them so with their place, and lets them in as soon as somebody goes", async () => {
    const [first = ""] = await fill();
    const third = create({ waitMs: LONG_MS });
    await expect.poll(async () => (await creating()).length, { timeout: patienceMs(10_000) }).toBe(1);
    const [waiter] = await creating();
    const id = waiter?.id ?? "";
    await expect.poll(async () => (await waitingEvents(id)).length, { timeout: patienceMs(10_000) }).toBeGreaterThan(0);
    expect((await waitingEvents(id))[0]).toMatchObject({ data: { position: 1 } });
    expect((await host()).waiting).toBe(1);
    await kill(first);
    expect(await third).toMatchObject({ status: 201, body: { id, status: "running" } });
  });

  test("tells of no place in the line to who has been let in", async () => {
    const ids = await fill();
    const asked = [create({ waitMs: LONG_MS }), create({ waitMs: LONG_MS })];
    await expect.poll(async () => (await host()).waiting, { timeout: patienceMs(10_000) }).toBe(2);
    // The second moves up, which would be told a second after it was told its first place.
    await Promise.all(ids.map(kill));
    const made = await Promise.all(asked);
    await sleep(1500);
    for (const { body } of made) {
      const { events } = (await server.call<EventList>("GET", `/v1/sandboxes/${body.id}/events?follow=0`)).body;
      const kinds = events.map(({ kind }) => kind);
      expect(kinds).toContain("waiting_for_memory");
      expect(kinds.lastIndexOf("waiting_for_memory")).toBeLessThan(kinds.indexOf("created"));
    }
  });

  test("gives up at the deadline", async () => {
    await fill();
    expect(await refused({ waitMs: 300 })).toMatchObject({ status: 429, body: { code: "host_capacity" } });
    expect(await creating()).toEqual([]);
  });

  test("forgets who is killed while waiting", async () => {
    await fill();
    const third = refused({ waitMs: LONG_MS });
    await expect.poll(async () => (await creating()).length, { timeout: patienceMs(10_000) }).toBe(1);
    const [waiter] = await creating();
    expect((await kill(waiter?.id ?? "")).status).toBeLessThan(300);
    expect((await third).body.code).toBe("canceled");
    expect((await host()).waiting).toBe(0);
  });

  /** Asks for one that has to wait, and hangs up. */
  async function askAndHangUp(headers: Readonly<Record<string, string>> = {}): Promise<void> {
    const hangUp = new AbortController();
    const asked = fetch(`${server.url}/v1/sandboxes`, {
      method: "POST",
      headers: { "X-API-Key": server.apiKey, "Content-Type": "application/json", ...headers },
      body: JSON.stringify({ limits: { memoryBytes: SIZE }, timeoutMs: 600_000, waitMs: LONG_MS }),
      signal: hangUp.signal,
    }).catch((reason: unknown) => reason);
    await expect.poll(async () => (await host()).waiting, { timeout: patienceMs(10_000) }).toBe(1);
    hangUp.abort();
    await asked;
  }

  test("forgets who hangs up while waiting", async () => {
    await fill();
    await askAndHangUp();
    await expect.poll(async () => (await host()).waiting, { timeout: patienceMs(10_000) }).toBe(0);
    expect(await creating()).toEqual([]);
  });

  test("waits for who hangs up and may come back, but not for long", { timeout: patienceMs(40_000) }, async () => {
    const [first = ""] = await fill();
    const headers = { "Idempotency-Key": "back" };
    await askAndHangUp(headers);
    const [waiter] = await creating();
    const again = server.call<SandboxInfo>(
      "POST",
      "/v1/sandboxes",
      { limits: { memoryBytes: SIZE }, timeoutMs: 600_000, waitMs: LONG_MS },
      headers,
    );
    await kill(first);
    expect((await again).body.id).toBe(waiter?.id);
    await askAndHangUp({ "Idempotency-Key": "gone" });
    await expect.poll(async () => (await host()).waiting, { timeout: patienceMs(20_000) }).toBe(0);
    expect(await creating()).toEqual([]);
  });

  test("lets a paused sandbox wait for its way back", async () => {
    const [first = "", second = ""] = await fill();
    expect((await server.call("POST", `/v1/sandboxes/${first}/pause`, { memory: true })).status).toBeLessThan(300);
    const { body: third } = await create({ waitMs: 0 });
    const resumed = server.call<SandboxInfo>("POST", `/v1/sandboxes/${first}/resume`, {});
    await expect.poll(async () => (await host()).waiting, { timeout: patienceMs(10_000) }).toBe(1);
    await kill(second);
    expect(await resumed).toMatchObject({ status: 200, body: { status: "running" } });
    expect(third.status).toBe("running");
  });
});

test("many at once are all let in, each in turn, and the promise is never broken", async () => {
  const COUNT = 20;
  let most = 0;
  const watch = setInterval(() => {
    const look = host().then(({ memory }) => {
      most = Math.max(most, memory.promisedBytes);
    });
    // The last ones may still be asked when the server is killed.
    look.catch(() => {});
  }, 50);
  try {
    const results = await Promise.all(
      Array.from({ length: COUNT }, async () => {
        const made = await create({ waitMs: LONG_MS }, SIZE);
        if (made.status === 201) await kill(made.body.id);
        return made.status;
      }),
    );
    expect(results).toEqual(Array.from({ length: COUNT }, () => 201));
  } finally {
    clearInterval(watch);
  }
  expect(most).toBeGreaterThan(0);
  expect(most).toBeLessThanOrEqual(ROOM_MIB * MIB);
}, 120_000);

test("after a sudden death with a full line nothing is promised twice, and nobody waits", async () => {
  const ids = await fill();
  const lost = Array.from({ length: 10 }, () => create({ waitMs: LONG_MS }).catch(() => "cut off"));
  await expect.poll(async () => (await host()).waiting, { timeout: patienceMs(10_000) }).toBe(10);
  await server.kill("SIGKILL");
  await Promise.all(lost);
  await server.restart();
  const { reservations, waiting } = await host();
  expect(waiting).toBe(0);
  expect(reservations.map(({ id }) => id).sort()).toEqual(ids.sort());
  expect(await creating()).toEqual([]);
  expect((await refused({ waitMs: 0 })).status).toBe(429);
  await kill(ids[0] ?? "");
  await sleep(10);
  expect((await create({ waitMs: LONG_MS })).status).toBe(201);
}, 120_000);

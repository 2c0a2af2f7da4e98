/** Sandboxes that are ready before they are asked for, as users of the server meet them, and what a sudden death leaves. */
import { setTimeout as sleep } from "node:timers/promises";
import type { ErrorBody, HostInfo, SandboxInfo, SandboxList } from "@holdfast/protocol";
import { Holdfast, Image } from "@holdfast/sdk";
import { Sandbox as E2bSandbox } from "e2b";
import { afterEach, describe, expect, test } from "vitest";
import { importTiny } from "../helpers/import-tiny.js";
import { takeInventory } from "../helpers/leaks.js";
import { fitting } from "../helpers/needs-host.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { type ServerInUse, useServer } from "../helpers/use-server.js";

const MIB = 1024 * 1024;
const LIMITS = { memoryBytes: 96 * MIB, diskBytes: 128 * MIB, pids: 24 };
/** Beside what is kept ready. */
const MANY = fitting(30, LIMITS);

const create = (server: ServerInUse, more: object = {}, headers: Readonly<Record<string, string>> = {}) =>
  server.call<SandboxInfo>("POST", "/v1/sandboxes", { limits: LIMITS, timeoutMs: 600_000, ...more }, headers);
const kill = (server: ServerInUse, id: string) => server.call<ErrorBody | null>("DELETE", `/v1/sandboxes/${id}`);
const host = async (server: ServerInUse) => (await server.call<HostInfo>("GET", "/v1/host")).body;

/** Asks for some and lets them go; then so many more have been made, and are ready. */
async function fill(server: ServerInUse, count = 2, more: object = {}): Promise<void> {
  const { made } = (await host(server)).warm;
  for (let asked = 0; asked < count; asked++) {
    const { status, body } = await create(server, more);
    expect(status).toBe(201);
    await kill(server, body.id);
  }
  const isFull = async () => {
    const { warm } = await host(server);
    return warm.made >= made + count && warm.ready >= count;
  };
  await expect.poll(isFull, { timeout: patienceMs(10_000) }).toBe(true);
}

async function killAll(server: ServerInUse): Promise<void> {
  const { body } = await server.call<SandboxList>("GET", "/v1/sandboxes");
  await Promise.all(body.sandboxes.map(({ id }) => kill(server, id)));
}

describe("a server", () => {
  const server = useServer({ args: ["--warm-keep-free-percent", "5"] });
  const holdfast = () => new Holdfast({ url: server.url, apiKey: server.apiKey });
  afterEach(() => killAll(server));

  test("hands out a ready sandbox with all that was asked for, and lists none that is only ready", async () => {
    await fill(server);
    const before = await host(server);
    expect(before.sandboxes).toEqual({ running: 0, paused: 0 });
    expect((await server.call<SandboxList>("GET", "/v1/sandboxes")).body.sandboxes).toEqual([]);
    expect(before.warm.promisedBytes).toBeGreaterThanOrEqual(before.warm.ready * LIMITS.memoryBytes);
    expect(before.memory.promisedBytes).toBe(before.warm.promisedBytes);
    expect(before.warm.usedPids).toBeGreaterThan(0);
    // Nobody's: a key sees none of them among its own.
    expect(before.reservations).toEqual([]);
    const ready = server.readyDirectories();
    const { body } = await create(server, { env: { WHO: "me" }, metadata: { a: "b" }, timeoutMs: 123_000 });
    expect(ready).toContain(body.id);
    expect(body).toMatchObject({ status: "running", metadata: { a: "b" }, limits: LIMITS });
    expect(Date.parse(body.expiresAt ?? "") - Date.parse(body.createdAt)).toBe(123_000);
    const sandbox = await holdfast().sandboxes.connect(body.id);
    expect((await sandbox.run("echo $WHO")).stdout).toBe("me\n");
    const after = await host(server);
    expect(after.warm.hits).toBe(before.warm.hits + 1);
    expect(after.reservations).toMatchObject([{ id: body.id, kind: "sandbox" }]);
    expect(server.log).toMatch(/kept ready; they hold \d+ processes and/);
  });

  test("hands out to E2B's SDK as well", async () => {
    const connection = { apiUrl: server.url, sandboxUrl: server.url, apiKey: server.apiKey };
    const first = await E2bSandbox.create(connection);
    await first.kill();
    await sleep(500);
    await expect.poll(() => server.readyDirectories().length, { timeout: patienceMs(10_000) }).toBeGreaterThan(0);
    const { hits } = (await host(server)).warm;
    const sandbox = await E2bSandbox.create({ ...connection, envs: { WHO: "you" } });
    expect((await sandbox.commands.run("echo $WHO")).stdout).toBe("you\n");
    expect((await host(server)).warm.hits).toBe(hits + 1);
  });

  test("gives one to each of many who ask at once", async () => {
    await fill(server);
    const made = await Promise.all(Array.from({ length: MANY }, () => create(server)));
    expect(made.map(({ status }) => status)).toEqual(made.map(() => 201));
    expect(new Set(made.map(({ body }) => body.id)).size).toBe(MANY);
  });

  test("gives the same request the same sandbox, ready or not", async () => {
    await fill(server);
    const { hits } = (await host(server)).warm;
    const headers = { "Idempotency-Key": "once" };
    const [one, two] = await Promise.all([create(server, {}, headers), create(server, {}, headers)]);
    const three = await create(server, {}, headers);
    expect(new Set([one, two, three].map(({ body }) => body.id)).size).toBe(1);
    expect((await host(server)).warm.hits).toBe(hits + 1);
    await expect.poll(() => server.readyDirectories().length, { timeout: patienceMs(10_000) }).toBeGreaterThan(0);
  });

  test("removes an image that ready sandboxes stand on", { timeout: patienceMs(60_000) }, async () => {
    await importTiny(server);
    const image = { image: "tiny", limits: { memoryBytes: 32 * MIB, diskBytes: 128 * MIB } };
    await fill(server, 1, image);
    const { ready, waste } = (await host(server)).warm;
    expect(ready).toBeGreaterThan(0);
    expect((await server.call("DELETE", "/v1/images/tiny")).status).toBeLessThan(300);
    expect((await host(server)).warm.waste.drained).toBeGreaterThan(waste.drained);
    expect((await create(server, image)).status).toBe(404);
  });

  test("starts what an image is there to run when it is handed out, with what was asked for", {
    timeout: patienceMs(60_000),
  }, async () => {
    await importTiny(server);
    const start = "echo $WHO > /dev/shm/who; exec sleep 1000";
    const image = Image.from("tiny")
      .builder({ memoryMb: 128, diskMb: 200, runtimeMemoryMb: 32, network: "off" })
      .startCommand(start, { readyWhen: "test -s /dev/shm/who" });
    await holdfast().images.build(image, { name: "started", env: {} } as { name: string });
    const more = { image: "started", limits: { memoryBytes: 64 * MIB, diskBytes: 128 * MIB }, env: { WHO: "first" } };
    await fill(server, 1, more);
    const ready = server.readyDirectories();
    const { body } = await create(server, { ...more, env: { WHO: "second" } });
    expect(ready).toContain(body.id);
    const sandbox = await holdfast().sandboxes.connect(body.id);
    expect((await sandbox.run(["/bin/cat", "/dev/shm/who"])).stdout).toBe("second\n");
  });

  test("that is killed at any moment leaves none behind, and none to anybody", {
    timeout: patienceMs(180_000),
  }, async () => {
    const witness = (await create(server)).body.id;
    for (let round = 0; round < scaled(10, 2); round++) {
      await fill(server, 1);
      const asked = Array.from({ length: 4 }, () =>
        create(server).then(
          ({ body }) => body.id,
          () => undefined,
        ),
      );
      await sleep(Math.random() * 80);
      await server.kill("SIGKILL");
      const answered = (await Promise.all(asked)).filter((id) => id !== undefined);
      await server.restart();
      const { body } = await server.call<SandboxList>("GET", "/v1/sandboxes");
      const listed = body.sandboxes.map(({ id }) => id);
      expect(listed).toEqual(expect.arrayContaining([witness, ...answered]));
      const { reservations, warm } = await host(server);
      expect(reservations.map(({ id, kind }) => `${id} ${kind}`).sort()).toEqual(
        listed.map((id) => `${id} sandbox`).sort(),
      );
      expect(warm).toMatchObject({ ready: 0, made: 0, hits: 0 });
      expect(server.sandboxDirectories().sort()).toEqual([...listed].sort());
      expect(new Set(takeInventory().sandboxCgroups.map((path) => path.split("/").at(-1))).size).toBe(listed.length);
      await Promise.all(listed.filter((id) => id !== witness).map((id) => kill(server, id)));
    }
  });
});

describe("a key with a limit", () => {
  const server = useServer({ args: ["--key-sandboxes", "2", "--warm-keep-free-percent", "5"] });
  afterEach(() => killAll(server));

  test("has as many as it may, whatever is ready", async () => {
    await fill(server);
    const made = [await create(server), await create(server)];
    expect(made.map(({ status }) => status)).toEqual([201, 201]);
    const refused = (await create(server)) as { status: number; body: unknown };
    expect(refused).toMatchObject({ status: 429, body: { code: "limit_reached" } });
    await kill(server, made[0]?.body.id ?? "");
    expect((await create(server)).status).toBe(201);
  });
});

describe("a server that keeps none ready", () => {
  const server = useServer({ args: ["--warm-per-shape", "0"] });

  test("makes each when it is asked for", async () => {
    const { body } = await create(server);
    await kill(server, body.id);
    await sleep(200);
    expect((await host(server)).warm).toMatchObject({ ready: 0, made: 0, hits: 0, misses: 0 });
    expect(server.readyDirectories()).toEqual([]);
  });
});

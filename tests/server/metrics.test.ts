/** `/metrics` of a real server, with real sandboxes: what is counted, who may see it, and that asking hurts nobody. */
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BubblewrapEngine } from "@holdfast/engine";
import type { CommandInfo, HostInfo, SandboxInfo, SandboxList } from "@holdfast/protocol";
import { Holdfast, Image } from "@holdfast/sdk";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { importTiny } from "../helpers/import-tiny.js";
import { operatorCall } from "../helpers/operator-call.js";
import { patienceMs } from "../helpers/scale.js";
import { expectScrapeSince, type Scrape, scrape } from "../helpers/scrape.js";
import { makeSmallHost } from "../helpers/small-host.js";
import { SMALL_LIMITS } from "../helpers/use-engine.js";
import { type ServerInUse, useServer } from "../helpers/use-server.js";

const MIB = 1024 * 1024;
const ROOM_MIB = 1500;
const LONG_MS = 60_000;
const timeout = patienceMs(10_000);

const small = makeSmallHost({ memoryBytes: (ROOM_MIB + 100) * MIB });
// Before the server's own, because hooks run in reverse.
afterAll(() => small.remove());
const server = useServer({
  args: ["--drain-seconds", "4"],
  env: { HOLDFAST_CGROUP_PARENT: small.parent, HOLDFAST_SERVE_RESERVE_MEMORY_MB: "100" },
});

const create = (memoryMb: number, more: object = {}) =>
  server.call<SandboxInfo>("POST", "/v1/sandboxes", {
    limits: { memoryBytes: memoryMb * MIB },
    timeoutMs: 600_000,
    ...more,
  });
const kill = (id: string) => server.call("DELETE", `/v1/sandboxes/${id}`);

/** Resolves when it has ended. */
async function run(id: string, script: string, limits: object = {}): Promise<void> {
  const path = `/v1/sandboxes/${id}/commands`;
  const { status, body } = await server.call<CommandInfo>("POST", path, { argv: ["sh", "-c", script], limits });
  expect(status).toBeLessThan(300);
  const headers = { "X-API-Key": server.apiKey };
  await (await fetch(`${server.url}${path}/${body.id}/output?data=0`, { headers })).text();
}

const expectSince = (before: Scrape, wanted: Readonly<Record<string, number>>) =>
  expectScrapeSince(server, before, wanted);

async function expectNow(wanted: Readonly<Record<string, number>>): Promise<void> {
  const values = async () => {
    const now = await scrape(server);
    return Object.fromEntries(Object.keys(wanted).map((series) => [series, now.value(series)]));
  };
  await expect.poll(values, { timeout, interval: 200 }).toEqual(wanted);
}

afterEach(async () => {
  const { body } = await server.call<SandboxList>("GET", "/v1/sandboxes");
  await Promise.all(body.sandboxes.map(({ id }) => kill(id)));
});

describe("a scrape", () => {
  test("is what promtool takes for metrics, without a complaint", async () => {
    const { text } = await scrape(server);
    expect(execFileSync("promtool", ["check", "metrics"], { input: text, encoding: "utf8", stdio: "pipe" })).toBe("");
  });

  test("counts sandboxes and commands by how they ended, and how long they took", async () => {
    const before = await scrape(server);
    const { body } = await create(256);
    await run(body.id, "exit 3");
    await run(body.id, "kill -9 $$");
    await run(body.id, "sleep 60", { wallMs: 200 });
    await run(body.id, "head -c 200m /dev/zero | tail -c 200m >/dev/null", { memoryBytes: 64 * MIB });
    await expectNow({ 'holdfast_sandboxes{state="running"}': 1 });
    await kill(body.id);
    const after = await expectSince(before, {
      'holdfast_command_endings_total{cause="exited"}': 1,
      'holdfast_command_endings_total{cause="signaled"}': 1,
      'holdfast_command_endings_total{cause="timed_out"}': 1,
      'holdfast_command_endings_total{cause="out_of_memory"}': 1,
      'holdfast_command_endings_total{cause="lost"}': 0,
      holdfast_command_seconds_count: 4,
      'holdfast_sandbox_endings_total{cause="killed"}': 1,
      'holdfast_sandbox_endings_total{cause="lost"}': 0,
      'holdfast_create_seconds_count{how="cold"}': 1,
      'holdfast_create_seconds_count{how="warm"}': 0,
      holdfast_kill_seconds_count: 1,
      'holdfast_sandboxes{state="running"}': 0,
    });
    expect(after.value("holdfast_command_seconds_sum")).toBeGreaterThan(0.2);
  });

  test("counts what happened to a command that went on, and a sandbox whose time was up", async () => {
    const before = await scrape(server);
    const { body } = await create(128, { timeoutMs: 600_000 });
    await run(body.id, "(head -c 100m /dev/zero | tail -c 100m >/dev/null); exit 0", { memoryBytes: 32 * MIB });
    await server.call("POST", `/v1/sandboxes/${body.id}/timeout`, { timeoutMs: 100 });
    await expectSince(before, {
      'holdfast_command_incidents_total{kind="out_of_memory"}': 1,
      'holdfast_sandbox_endings_total{cause="timed_out"}': 1,
    });
  });

  test("knows the paused from the stopped, and times forks and resumes", async () => {
    const before = await scrape(server);
    const [one, other] = await Promise.all([create(64), create(64)]);
    await server.call("POST", `/v1/sandboxes/${one.body.id}/pause`, { memory: true });
    await server.call("POST", `/v1/sandboxes/${other.body.id}/pause`, { memory: false });
    await expectNow({
      'holdfast_sandboxes{state="paused"}': 1,
      'holdfast_sandboxes{state="stopped"}': 1,
      'holdfast_sandboxes{state="running"}': 0,
    });
    await server.call("POST", `/v1/sandboxes/${one.body.id}/resume`, {});
    await server.call("POST", `/v1/sandboxes/${other.body.id}/resume`, {});
    expect((await server.call("POST", `/v1/sandboxes/${one.body.id}/fork`, { count: 2 })).status).toBeLessThan(300);
    await expectSince(before, {
      'holdfast_create_seconds_count{how="resume"}': 2,
      'holdfast_create_seconds_count{how="fork"}': 2,
      'holdfast_create_seconds_count{how="cold"}': 2,
      'holdfast_sandboxes{state="running"}': 4,
    });
  });

  test("shows the host's budget as the API does", async () => {
    await create(512);
    const { memory, pids, disk } = (await server.call<HostInfo>("GET", "/v1/host")).body;
    await expectNow({
      holdfast_memory_host_bytes: memory.totalBytes,
      holdfast_memory_kept_bytes: memory.reserveBytes,
      holdfast_memory_reserved_bytes: memory.promisedBytes,
      holdfast_memory_capacity_bytes: memory.mostBytes,
      holdfast_pids_reserved: pids.promised,
      holdfast_pids_host: pids.total,
      holdfast_pids_kept: pids.reserve,
      holdfast_pids_capacity: pids.most,
      holdfast_disk_reserved_bytes: disk.promisedBytes,
      holdfast_disk_host_bytes: disk.totalBytes,
      holdfast_disk_kept_bytes: disk.reserveBytes,
      holdfast_disk_capacity_bytes: disk.mostBytes,
    });
    // No overcommitment here: what can be promised at most is the whole less the reserve.
    expect(memory.mostBytes).toBe(memory.totalBytes - memory.reserveBytes);
    expect([memory.capacityBytes, pids.capacity]).toEqual([memory.totalBytes, pids.total]);
    expect(disk.heldBytes).toBeLessThanOrEqual(disk.usedBytes);
    const now = await scrape(server);
    expect(now.value("holdfast_memory_used_bytes")).toBeGreaterThan(0);
    expect(now.value("holdfast_pids_used")).toBeGreaterThan(0);
    expect(now.value("holdfast_memory_room_bytes")).toBeLessThanOrEqual(ROOM_MIB * MIB);
  });

  test("shows who waits for room, how long they waited and what came of it", async () => {
    const before = await scrape(server);
    const { body: first } = await create(1200);
    const admitted = create(1200, { waitMs: LONG_MS });
    await expectNow({ holdfast_queue_length: 1, 'holdfast_sandboxes{state="creating"}': 1 });
    expect((await create(1200, { waitMs: 100 })).status).toBe(429);
    await kill(first.id);
    expect((await admitted).status).toBe(201);
    const canceled = create(1200, { waitMs: LONG_MS });
    await expectNow({ holdfast_queue_length: 1 });
    const { body: creating } = await server.call<SandboxList>("GET", "/v1/sandboxes?status=creating");
    await kill(creating.sandboxes[0]?.id ?? "");
    await canceled;
    const after = await expectSince(before, {
      holdfast_queue_length: 0,
      'holdfast_queue_wait_seconds_count{outcome="admitted"}': 1,
      'holdfast_queue_wait_seconds_count{outcome="refused"}': 1,
      'holdfast_queue_wait_seconds_count{outcome="canceled"}': 1,
      'holdfast_create_failures_total{code="host_capacity"}': 1,
      'holdfast_create_failures_total{code="canceled"}': 1,
      'holdfast_create_seconds_count{how="cold"}': 2,
    });
    expect(after.value('holdfast_queue_wait_seconds_sum{outcome="refused"}')).toBeGreaterThan(0.09);
  });

  test("counts builds by what came of them", async () => {
    const before = await scrape(server);
    const holdfast = new Holdfast({ url: server.url, apiKey: server.apiKey });
    await importTiny(server);
    const image = (command: string) =>
      Image.from("tiny")
        .builder({ memoryMb: 64, diskMb: 100, runtimeMemoryMb: 32, network: "off" })
        .runCommands(command);
    await holdfast.images.build(image("echo made > /made"));
    await holdfast.images.build(image("echo made > /made"));
    await expect(holdfast.images.build(image("exit 4"))).rejects.toThrow();
    await expectSince(before, {
      'holdfast_builds_total{outcome="ready"}': 1,
      'holdfast_builds_total{outcome="cached"}': 1,
      'holdfast_builds_total{outcome="failed"}': 1,
      holdfast_builds_under_way: 0,
    });
  });

  test("counts what could not be removed, and what was left for the next server to remove", async () => {
    const before = await scrape(server);
    const { body } = await create(64);
    const inTheWay = join(server.stateDirectory, "sandboxes", body.id, "mounted");
    const moved = join(server.stateDirectory, "sandboxes", `.${body.id}.gone`, "mounted");
    mkdirSync(inTheWay);
    execFileSync("mount", ["-t", "tmpfs", "none", inTheWay]);
    try {
      await kill(body.id);
      await expectSince(before, { 'holdfast_clean_up_failures_total{what="sandbox"}': 1 });
    } finally {
      execFileSync("umount", [moved]);
    }
    await server.kill("SIGKILL");
    await leaveSandbox();
    await server.restart();
    await expectNow({ holdfast_orphans_reaped_total: 1, 'holdfast_sandboxes{state="running"}': 0 });
  }, 120_000);

  test("names the patterns of routes, and nobody's sandboxes, keys, images or paths", async () => {
    const { body } = await create(64, { metadata: { who: "zzmetadatazz" } });
    for (const path of ["/zzpathzz", `/v1/sandboxes/${body.id}`, "/v1/sandboxes/zzidzz", "/%zz", "/sandboxes/../zz"]) {
      await server.call("GET", path).catch(() => undefined);
    }
    await server.call("PROPFIND", "/zzpathzz").catch(() => undefined);
    const { text, value } = await scrape(server);
    expect(value('holdfast_http_requests_total{plane="api",method="GET",route="/v1/sandboxes/:id",code="200"}')).toBe(
      1,
    );
    expect(value('holdfast_http_requests_total{plane="api",method="GET",route="/v1/sandboxes/:id",code="404"}')).toBe(
      1,
    );
    expect(value('holdfast_http_requests_total{plane="api",method="other",route="none",code="404"}')).toBeGreaterThan(
      0,
    );
    expect(text).not.toMatch(/zz/);
    expect(text).not.toContain(body.id);
    expect(text).not.toContain(server.apiKey);
    expect(text).not.toContain("tiny");
  });

  test("is the same for all who ask at once", async () => {
    await sleep(1100);
    const cpuSeconds = (text: string) => /^process_cpu_seconds_total (.*)$/m.exec(text)?.[1];
    const all = await Promise.all(Array.from({ length: 100 }, () => scrape(server)));
    expect(new Set(all.map(({ text }) => cpuSeconds(text))).size).toBeLessThanOrEqual(2);
    expect(all.every(({ value }) => value('holdfast_scrape_failures_total{part="host"}') === 0)).toBe(true);
  });

  test("still gives the rest when the host's budget cannot be read", async () => {
    const before = await scrape(server);
    // A file where the promises are: whoever looks for the directory fails.
    const directory = join("/run/holdfast/budget", ...budgetName());
    const { body } = await create(64);
    const aside = `${directory}.aside`;
    execFileSync("mv", [directory, aside]);
    try {
      execFileSync("touch", [directory]);
      await expect
        .poll(async () => (await scrape(server)).value('holdfast_scrape_failures_total{part="host"}'), { timeout })
        .toBeGreaterThan(before.value('holdfast_scrape_failures_total{part="host"}') ?? 0);
      const now = await scrape(server);
      expect(now.value("holdfast_memory_room_bytes")).toBeUndefined();
      expect(now.value('holdfast_sandboxes{state="running"}')).toBe(1);
    } finally {
      rmSync(directory);
      execFileSync("mv", [aside, directory]);
    }
    await expect
      .poll(async () => (await scrape(server)).value("holdfast_memory_room_bytes"), { timeout })
      .toBeGreaterThan(0);
    await kill(body.id);
  });

  test("is answered while the server stops, when nothing else is", async () => {
    await create(1200);
    const waiting = create(1200, { waitMs: LONG_MS }).catch(() => undefined);
    await expectNow({ holdfast_queue_length: 1 });
    const stopped = server.stop();
    await expect.poll(() => server.call("GET", "/v1/host").then(({ status }) => status), { timeout }).toBe(503);
    expect((await scrape(server)).value("holdfast_queue_length")).toBe(1);
    const toSandbox = await fetch(`${server.url}/metrics`, {
      headers: { "E2b-Sandbox-Id": "i0123456789abcdefghij", "E2b-Sandbox-Port": "8000" },
    });
    expect(toSandbox.status).toBe(503);
    await Promise.all([stopped, waiting]);
    await server.restart();
  });

  test("has met no cause that is none", async () => {
    await expectNow({ holdfast_unknown_causes_total: 0, 'holdfast_scrape_failures_total{part="sandboxes"}': 0 });
  });
});

test("a sandbox's own /metrics is the sandbox's", async () => {
  const { body } = await create(128);
  await server.call("POST", `/v1/sandboxes/${body.id}/commands`, {
    argv: ["sh", "-c", "mkdir /tmp/w && cd /tmp/w && echo its own > metrics && exec python3 -m http.server 8000"],
  });
  const ask = async () => {
    const headers = { "E2b-Sandbox-Id": body.id, "E2b-Sandbox-Port": "8000" };
    return (await fetch(`${server.url}/metrics`, { headers })).text();
  };
  await expect.poll(ask, { timeout }).toBe("its own\n");
});

/** Of a process that has come and gone, and that the server's store knows nothing of. */
async function leaveSandbox(): Promise<void> {
  const { HOLDFAST_CGROUP_PARENT } = process.env;
  process.env.HOLDFAST_CGROUP_PARENT = small.parent;
  try {
    const engine = await BubblewrapEngine.open({ stateDirectory: server.stateDirectory });
    await engine.create({ whenOwnerDies: "keep", limits: SMALL_LIMITS });
    await engine.close({ sandboxes: "keep" });
  } finally {
    if (HOLDFAST_CGROUP_PARENT === undefined) delete process.env.HOLDFAST_CGROUP_PARENT;
    else process.env.HOLDFAST_CGROUP_PARENT = HOLDFAST_CGROUP_PARENT;
  }
}

/** Of the cgroups above the sandboxes, which the directory of promises is named after. */
function budgetName(): string[] {
  const name = execFileSync("ls", ["/run/holdfast/budget"], { encoding: "utf8" }).trim().split("\n");
  expect(name).toHaveLength(1);
  return name;
}

describe("who may see it", () => {
  const guarded = useServer({ args: ["--metrics-access", "key", "--allow-plain-http", "--host", "0.0.0.0"] });
  const statusFor = async (of: ServerInUse, headers: Readonly<Record<string, string>>, url = of.url) =>
    (await fetch(`${url}/metrics`, { headers })).status;
  const keyOf = (of: ServerInUse) => join(of.stateDirectory, "server", "metrics.key");

  test("is whoever has the operator's key, or the operator's socket", async () => {
    const key = readFileSync(keyOf(guarded), "utf8").trim();
    expect(statSync(keyOf(guarded)).mode & 0o777).toBe(0o600);
    const url = `http://127.0.0.1:${guarded.port}`;
    expect(await statusFor(guarded, {}, url)).toBe(401);
    expect(await statusFor(guarded, { "X-API-Key": guarded.apiKey }, url)).toBe(401);
    expect(await statusFor(guarded, { Authorization: `Bearer ${guarded.apiKey}` }, url)).toBe(401);
    expect(await statusFor(guarded, { Authorization: `Bearer ${key}` }, url)).toBe(200);
    const overSocket = await operatorCall(guarded, "GET", "/metrics");
    expect([overSocket.status, overSocket.text.includes("holdfast_sandboxes")]).toEqual([200, true]);
    // It opens nothing else.
    expect((await fetch(`${url}/v1/host`, { headers: { Authorization: `Bearer ${key}` } })).status).toBe(401);
  });

  test("is this machine as long as nobody says otherwise, but no proxy and no page on it", async () => {
    const key = readFileSync(keyOf(server), "utf8").trim();
    expect(await statusFor(server, {})).toBe(200);
    for (const name of ["Forwarded", "X-Forwarded-For", "Via", "Origin"]) {
      expect(await statusFor(server, { [name]: "x" }), name).toBe(401);
      expect(await statusFor(server, { [name]: "x", Authorization: `Bearer ${key}` }), name).toBe(200);
    }
    const { headers } = await fetch(`${server.url}/metrics`);
    expect(headers.get("access-control-allow-origin")).toBeNull();
  });
});

const ownAddress = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ family, internal }) => family === "IPv4" && !internal)?.address;

describe.skipIf(ownAddress === undefined)("an address that is not loopback", () => {
  const open = useServer({ args: ["--allow-plain-http", "--host", "0.0.0.0"] });

  test("needs the key, by default", async () => {
    const url = `http://${ownAddress}:${open.port}/metrics`;
    expect((await fetch(url)).status).toBe(401);
    const key = readFileSync(join(open.stateDirectory, "server", "metrics.key"), "utf8").trim();
    expect((await fetch(url, { headers: { Authorization: `Bearer ${key}` } })).status).toBe(200);
    expect((await fetch(`http://127.0.0.1:${open.port}/metrics`)).status).toBe(200);
  });
});

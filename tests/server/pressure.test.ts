/** Pressure as users of the server meet it: what is told, who waits, who stands still, what is refused, what goes on. */
import { setTimeout as sleep } from "node:timers/promises";
import type {
  CommandInfo,
  ErrorBody,
  EventKind,
  EventList,
  HostInfo,
  SandboxEvent,
  SandboxInfo,
  SandboxList,
} from "@holdfast/protocol";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { patienceMs } from "../helpers/scale.js";
import { expectScrapeSince, scrape } from "../helpers/scrape.js";
import { makeSmallHost } from "../helpers/small-host.js";
import { useServer } from "../helpers/use-server.js";

const MIB = 1024 * 1024;
const HOST_MIB = 1024;

/** Quick, so that no test takes long; otherwise as it comes. */
const QUICK = {
  HOLDFAST_SERVE_PRESSURE_SOURCE: "usage",
  HOLDFAST_SERVE_PRESSURE_EVERY_SECONDS: "0.25",
  HOLDFAST_SERVE_PRESSURE_HOLD_SECONDS: "1",
  HOLDFAST_SERVE_SWEEP_EVERY_SECONDS: "1",
  HOLDFAST_SERVE_FREEZE_IDLE_SECONDS: "1",
  HOLDFAST_SERVE_THROTTLED_COMMANDS: "1",
  HOLDFAST_SERVE_THROTTLE_WAIT_SECONDS: "1",
  HOLDFAST_SERVE_RESERVE_MEMORY_MB: "16",
  HOLDFAST_SERVE_RESERVE_PIDS: "0",
};

const small = makeSmallHost({ memoryBytes: HOST_MIB * MIB, pids: 400 });
// Before the server's own, because hooks run in reverse.
afterAll(() => small.remove());
const server = useServer({
  env: {
    ...QUICK,
    HOLDFAST_CGROUP_PARENT: small.parent,
    HOLDFAST_SERVE_HOST_PRESSURE_USAGE: "[15,30,45,60,75]",
    HOLDFAST_SERVE_SANDBOX_PRESSURE_USAGE: "[20,40,60,80,95]",
  },
});

const OUTPUT_POLL = { interval: 50, timeout: patienceMs(10_000) };

async function create(more: object = {}): Promise<SandboxInfo> {
  const { status, body } = await server.call<SandboxInfo & ErrorBody>("POST", "/v1/sandboxes", {
    limits: { memoryBytes: 64 * MIB, pids: 64 },
    timeoutMs: 600_000,
    ...more,
  });
  expect([status, body.message]).toEqual([201, undefined]);
  return body;
}

const info = async (id: string): Promise<SandboxInfo> =>
  (await server.call<SandboxInfo>("GET", `/v1/sandboxes/${id}`)).body;
const host = async (): Promise<HostInfo> => (await server.call<HostInfo>("GET", "/v1/host")).body;
const start = (id: string, argv: readonly string[]) =>
  server.call<CommandInfo & ErrorBody>("POST", `/v1/sandboxes/${id}/commands`, { argv, whenReaderIsSlow: "drop" });
const end = (id: string, command: number) => server.call("DELETE", `/v1/sandboxes/${id}/commands/${command}?graceMs=0`);

async function eventsOf(id: string, ...kinds: EventKind[]): Promise<SandboxEvent[]> {
  const { body } = await server.call<EventList>("GET", `/v1/sandboxes/${id}/events?follow=0`);
  return body.events.filter(({ kind }) => kinds.includes(kind));
}

/** As text, `calm>warn`. */
const crossings = async (id: string, kind: EventKind): Promise<string[]> =>
  (await eventsOf(id, kind)).map(({ data }) => `${String(data.from)}>${String(data.to)}`);

async function startOrThrow(id: string, ...argv: string[]): Promise<CommandInfo> {
  const { status, body } = await start(id, argv);
  expect([status, body.message]).toEqual([201, undefined]);
  return body;
}

async function hasEnded(id: string, command: number): Promise<boolean> {
  const { body } = await server.call<CommandInfo>("GET", `/v1/sandboxes/${id}/commands/${command}`);
  return body.ending !== null;
}

/** What a command says, all of it; it must end by itself. */
async function say(id: string, script: string, user = "root"): Promise<string> {
  const response = await fetch(`${server.url}/v1/sandboxes/${id}/run`, {
    method: "POST",
    headers: { "X-API-Key": server.apiKey, "Content-Type": "application/json" },
    body: JSON.stringify({ argv: ["sh", "-c", script], user }),
  });
  const lines = (await response.text()).trim().split("\n");
  return lines
    .map((line) => JSON.parse(line) as { type: string; base64?: string })
    .flatMap(({ type, base64 }) => (type === "data" ? [Buffer.from(base64 ?? "", "base64").toString()] : []))
    .join("");
}

/** A program that holds so much memory until it is ended. */
const hold = (mib: number): string[] => [
  "python3",
  "-c",
  `b = bytearray(${mib} * 1048576)
for i in range(0, len(b), 4096): b[i] = 1
import time; time.sleep(1000)`,
];

const sleepers = (count: number): string[] => [
  "sh",
  "-c",
  `i=0; while [ $i -lt ${count} ]; do sleep 1000 & i=$((i+1)); done; wait`,
];

afterEach(async () => {
  const { body } = await server.call<SandboxList>("GET", "/v1/sandboxes");
  await Promise.all(body.sandboxes.map(({ id }) => server.call("DELETE", `/v1/sandboxes/${id}`)));
  const calm = async () => {
    const { memory, processes } = (await host()).pressure;
    return [memory.stage, processes.stage];
  };
  await expect.poll(calm, { timeout: patienceMs(20_000) }).toEqual(["calm", "calm"]);
});

describe("memory of a sandbox", () => {
  test("goes through the stages and back, one event for each crossing, and programs inside can read it", async () => {
    const { id } = await create();
    expect(await say(id, "cat /dev/holdfast/pressure", "user")).toBe("calm\n");
    expect((await info(id)).pressure).toEqual({ memory: "calm", processes: "calm", frozen: false });
    const { id: command } = await startOrThrow(id, ...hold(24));
    await expect.poll(async () => (await info(id)).pressure?.memory, OUTPUT_POLL).toBe("warn");
    const { body } = await server.call<SandboxList>("GET", "/v1/sandboxes");
    expect(body.sandboxes[0]?.pressure?.memory).toBe("warn");
    await expect
      .poll(() => say(id, "cat /dev/holdfast/pressure", "user"), OUTPUT_POLL)
      .toMatch(/^warn memory: [45]\d(\.\d)? % of 64 MiB are in use\n$/);
    await end(id, command);
    await expect.poll(async () => (await info(id)).pressure?.memory, OUTPUT_POLL).toBe("calm");
    await expect.poll(() => say(id, "cat /dev/holdfast/pressure", "user"), OUTPUT_POLL).toBe("calm\n");
    const told = await crossings(id, "pressure");
    expect(told[0]).toMatch(/^calm>/);
    expect(told.filter((text) => text.endsWith(">warn"))).toHaveLength(1);
    expect(told.at(-1)).toMatch(/>calm$/);
    expect(told.every((text, i) => i === 0 || text.split(">")[0] === told[i - 1]?.split(">")[1])).toBe(true);
  });

  test("that is nearly used up lets commands wait their turn, then refuses them; what runs goes on", async () => {
    const { id } = await create();
    const counter = await startOrThrow(id, "sh", "-c", "while sleep 0.1; do echo x >>/home/user/count; done");
    const held = await startOrThrow(id, ...hold(36));
    await expect.poll(async () => (await info(id)).pressure?.memory, OUTPUT_POLL).toMatch(/throttle|freeze/);
    const first = await startOrThrow(id, "sleep", "1000");
    const second = await start(id, ["true"]);
    expect(second).toMatchObject({ status: 503, body: { code: "host_pressure", details: { scope: "sandbox" } } });
    expect(Number(second.headers.get("retry-after"))).toBeGreaterThan(0);
    // The turn of one that waits comes when the other has ended.
    const third = start(id, ["true"]);
    await sleep(100);
    await end(id, first.id);
    expect((await third).status).toBe(201);
    expect(await hasEnded(id, counter.id)).toBe(false);
    await end(id, held.id);
    await expect.poll(async () => (await info(id)).pressure?.memory, OUTPUT_POLL).toBe("calm");
    const several = await Promise.all([1, 2, 3].map(() => start(id, ["sleep", "1"])));
    expect(several.map(({ status }) => status)).toEqual([201, 201, 201]);
  });
});

describe("processes of a sandbox", () => {
  test("warn, alert and refuse once each although their number flutters; running work is unharmed", async () => {
    const { id } = await create({ limits: { memoryBytes: 128 * MIB, pids: 104 } });
    const counter = await startOrThrow(id, "sh", "-c", "while sleep 0.1; do echo x >>/home/user/count; done");
    await startOrThrow(id, ...sleepers(61));
    await expect.poll(async () => (await info(id)).pressure?.processes, OUTPUT_POLL).toBe("warn");
    await startOrThrow(id, ...sleepers(19));
    await expect.poll(async () => (await info(id)).pressure?.processes, OUTPUT_POLL).toBe("alert");
    const last = await startOrThrow(id, ...sleepers(9));
    await expect.poll(async () => (await info(id)).pressure?.processes, OUTPUT_POLL).toBe("refuse");
    const refused = await start(id, ["true"]);
    expect(refused).toMatchObject({ status: 503, body: { code: "pid_pressure", details: { scope: "sandbox" } } });
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    // The counter's own sleeps come and go around the thresholds all the while.
    await sleep(2000);
    expect(await crossings(id, "pid_pressure")).toEqual(["calm>warn", "warn>alert", "alert>refuse"]);
    expect(await hasEnded(id, counter.id)).toBe(false);
    await end(id, last.id);
    await expect.poll(async () => (await start(id, ["true"])).status, OUTPUT_POLL).toBe(201);
    // The stage itself is left later, so that it does not flutter.
    await expect
      .poll(async () => (await eventsOf(id, "pid_pressure"))[3]?.data, OUTPUT_POLL)
      .toMatchObject({ from: "refuse", to: "alert", direction: "down" });
  });

  test("that outlived their command are ended at the alert, and the freed are told", async () => {
    const { id } = await create({ limits: { memoryBytes: 128 * MIB, pids: 104 } });
    const { id: running } = await startOrThrow(id, ...sleepers(30));
    await say(id, "i=0; while [ $i -lt 55 ]; do sleep 1000 >/dev/null 2>&1 & i=$((i+1)); done");
    // At the alert, or a few seconds later if their command had not ended by then.
    const ended = async () =>
      (await eventsOf(id, "cleaned_up")).reduce((sum, { data }) => sum + Number(data.orphansEnded), 0);
    await expect.poll(ended, OUTPUT_POLL).toBe(55);
    const [cleaned] = (await eventsOf(id, "cleaned_up")).filter(({ data }) => Number(data.orphansEnded) > 0);
    expect(cleaned?.data).toMatchObject({
      failed: 0,
      freed: Number(cleaned?.data.orphansEnded) + Number(cleaned?.data.zombiesReaped),
    });
    expect(await hasEnded(id, running)).toBe(false);
    await expect.poll(async () => (await info(id)).pressure?.processes, OUTPUT_POLL).toBe("calm");
    expect((await host()).pressure.totals.orphansEnded).toBeGreaterThanOrEqual(55);
  });

  test("are counted on the host: the living, the dead, the orphaned", async () => {
    const { id } = await create();
    await startOrThrow(
      id,
      "python3",
      "-c",
      "import os,time\nfor _ in range(5):\n if os.fork()==0: os._exit(0)\ntime.sleep(1000)",
    );
    await say(id, "sleep 1000 >/dev/null 2>&1 & sleep 1001 >/dev/null 2>&1 &");
    const counts = async () => {
      const { live, zombies, orphans } = (await host()).pressure.processes;
      return { live, zombies, orphans };
    };
    await expect.poll(counts, OUTPUT_POLL).toEqual({ live: 1, zombies: 5, orphans: 2 });
  });
});

describe("a host that runs short", () => {
  /** Held in one that is busy and of normal priority. */
  const fill = async (mib: number): Promise<{ id: string; command: number }> => {
    const { id } = await create({ limits: { memoryBytes: (mib + 60) * MIB, pids: 64 } });
    return { id, command: (await startOrThrow(id, ...hold(mib))).id };
  };
  const stageIs = (stage: string | RegExp) =>
    expect.poll(async () => (await host()).pressure.memory.stage, OUTPUT_POLL).toMatch(stage);

  test("freezes the idle and those of low priority, and thaws them when they are used or it has memory again", async () => {
    const idle = await create();
    const other = await create();
    const low = await create({ metadata: { "holdfast.priority": "low" } });
    const { body: counting } = await start(low.id, ["sh", "-c", "while sleep 0.1; do echo x >>/home/user/count; done"]);
    const busy = await fill(680);
    await stageIs("freeze");
    const frozen = async (id: string) => (await info(id)).pressure?.frozen;
    for (const { id } of [idle, other, low]) await expect.poll(() => frozen(id), OUTPUT_POLL).toBe(true);
    expect(await frozen(busy.id)).toBe(false);
    expect((await host()).pressure.frozen).toBe(3);
    expect((await info(idle.id)).status).toBe("running");
    expect((await eventsOf(idle.id, "frozen"))[0]?.message).toMatch(/idle/);
    expect((await eventsOf(low.id, "frozen"))[0]?.message).toMatch(/priority/);
    // Whoever may not use it does not move it, and neither does who asks for its health.
    const envd = (path: string) =>
      fetch(`${server.url}${path}`, { headers: { "E2b-Sandbox-Id": idle.id, "E2b-Sandbox-Port": "49983" } });
    expect((await envd("/health")).status).toBe(204);
    expect((await envd("/files?path=/etc/passwd")).status).toBeGreaterThanOrEqual(400);
    expect(await eventsOf(idle.id, "thawed")).toEqual([]);
    // Used, it moves, and stands still again when it is left alone.
    expect(await say(idle.id, "echo well; cat /dev/holdfast/pressure")).toMatch(/^well\nfreeze host: /);
    expect((await eventsOf(idle.id, "thawed"))[0]?.message).toMatch(/used/);
    await expect.poll(() => frozen(idle.id), OUTPUT_POLL).toBe(true);
    await end(busy.id, busy.command);
    for (const { id } of [idle, other, low]) await expect.poll(() => frozen(id), OUTPUT_POLL).toBe(false);
    expect((await eventsOf(other.id, "thawed"))[0]?.message).toMatch(/has memory again/);
    const counted = async () => {
      const now = await scrape(server);
      const { frozen, thawed } = (await host()).pressure.totals;
      return [
        now.value("holdfast_pressure_frozen_total") === frozen,
        now.value("holdfast_pressure_thawed_total") === thawed,
        // Each of the three, and one of them twice.
        frozen >= 4 && thawed >= 4,
      ];
    };
    await expect.poll(counted, OUTPUT_POLL).toEqual([true, true, true]);
    expect(await hasEnded(low.id, counting.id)).toBe(false);
  });

  test("can have what it froze paused, resumed and killed", async () => {
    const [one, two, three] = [await create(), await create(), await create()];
    const busy = await fill(680);
    for (const { id } of [one, two, three])
      await expect.poll(async () => (await info(id)).pressure?.frozen, OUTPUT_POLL).toBe(true);
    expect((await server.call("POST", `/v1/sandboxes/${one.id}/pause`, { memory: true })).status).toBe(200);
    expect((await server.call("POST", `/v1/sandboxes/${two.id}/pause`, { memory: false })).status).toBe(200);
    expect((await server.call("DELETE", `/v1/sandboxes/${three.id}`)).status).toBe(200);
    expect((await info(one.id)).pressure).toBeNull();
    await end(busy.id, busy.command);
    await stageIs("calm");
    for (const { id } of [one, two]) {
      expect((await server.call("POST", `/v1/sandboxes/${id}/resume`, {})).status).toBe(200);
      expect(await say(id, "echo well")).toBe("well\n");
    }
  });

  test("refuses what is new with the time to come back, and what runs goes on", async () => {
    const { id } = await create();
    const paused = await create();
    await server.call("POST", `/v1/sandboxes/${paused.id}/pause`, { memory: true });
    const busy = await fill(820);
    await stageIs("refuse");
    const before = await scrape(server);
    const refusals = [
      await server.call<ErrorBody>("POST", "/v1/sandboxes", { limits: { memoryBytes: 16 * MIB } }),
      await server.call<ErrorBody>("POST", "/sandboxes", { templateID: "base" }),
      await server.call<ErrorBody>("POST", `/v1/sandboxes/${id}/fork`, { count: 1 }),
      await server.call<ErrorBody>("POST", `/v1/sandboxes/${paused.id}/resume`, {}),
      await server.call<ErrorBody>("POST", `/v1/sandboxes/${busy.id}/commands`, { argv: ["true"] }),
    ];
    for (const { status, headers, body } of refusals) {
      // E2B's routes have codes of their own.
      expect([status, body.code]).toEqual([503, typeof body.code === "number" ? 503 : "host_pressure"]);
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    }
    expect(await hasEnded(busy.id, busy.command)).toBe(false);
    const stages = (await host()).pressure.events.filter(({ kind }) => kind === "pressure");
    expect(stages.at(-1)?.data).toMatchObject({ to: "refuse", direction: "up" });
    expect((await host()).pressure.totals.refused).toBeGreaterThanOrEqual(5);
    const refused = (work: string) =>
      `holdfast_pressure_refused_total{work="${work}",code="host_pressure",scope="host"}`;
    await expectScrapeSince(server, before, {
      [refused("create")]: 3,
      [refused("resume")]: 1,
      [refused("command")]: 1,
      [refused("build")]: 0,
      'holdfast_create_failures_total{code="host_pressure"}': 4,
    });
    await end(busy.id, busy.command);
    await expect.poll(async () => (await start(id, ["true"])).status, OUTPUT_POLL).toBe(201);
  });

  test("of processes refuses what is new, and takes it again", async () => {
    // All but a few of what nobody else has.
    const { room } = (await host()).pids;
    const { id } = await create({ limits: { memoryBytes: 256 * MIB, pids: room - 10 } });
    const { id: command } = await startOrThrow(id, ...sleepers(room - 30));
    await expect.poll(async () => (await host()).pressure.processes.stage, OUTPUT_POLL).toBe("refuse");
    const refused = await server.call<ErrorBody>("POST", "/v1/sandboxes", {
      limits: { memoryBytes: 16 * MIB, pids: 8 },
    });
    expect([refused.status, refused.body.code]).toEqual([503, "pid_pressure"]);
    expect(refused.body.details).toMatchObject({ scope: "host" });
    const series = 'holdfast_pressure_refused_total{work="create",code="pid_pressure",scope="host"}';
    await expect.poll(async () => (await scrape(server)).value(series), OUTPUT_POLL).toBe(1);
    expect(await hasEnded(id, command)).toBe(false);
    await end(id, command);
    await expect.poll(async () => (await start(id, ["true"])).status, OUTPUT_POLL).toBe(201);
  });

  test("thaws before the server stops, and a killed server's successor does", async () => {
    const { id } = await create();
    const busy = await fill(680);
    await expect.poll(async () => (await info(id)).pressure?.frozen, OUTPUT_POLL).toBe(true);
    await server.stop();
    await server.restart();
    expect(await say(id, "echo well; cat /dev/holdfast/pressure")).toMatch(/^well\n/);
    await expect.poll(async () => (await info(id)).pressure?.frozen, OUTPUT_POLL).toBe(true);
    await server.kill("SIGKILL");
    await server.restart();
    expect(await say(id, "echo well")).toBe("well\n");
    expect(await hasEnded(busy.id, busy.command)).toBe(false);
  });
});

test("a priority that is none is refused", async () => {
  const { status, body } = await server.call<ErrorBody>("POST", "/v1/sandboxes", {
    metadata: { "holdfast.priority": "high" },
  });
  expect([status, body.code, body.details?.field]).toEqual([400, "invalid_argument", "metadata.holdfast.priority"]);
});

/** Pressure as the kernel tells it, and the sweep of what belongs to nobody, beside a server with the usual settings. */
import { existsSync } from "node:fs";
import type { CommandInfo, EventList, HostInfo, SandboxInfo } from "@holdfast/protocol";
import { beforeAll, expect, test } from "vitest";
import { buildEngine, runScript } from "../helpers/built-engine.js";
import { operatorCall } from "../helpers/operator-call.js";
import { patienceMs } from "../helpers/scale.js";
import { SMALL_LIMITS } from "../helpers/use-engine.js";
import { useServer } from "../helpers/use-server.js";

const MIB = 1024 * 1024;
const POLL = { interval: 100, timeout: patienceMs(30_000) };

beforeAll(buildEngine, patienceMs(60_000));
const server = useServer({
  forgivesZombies: true,
  env: {
    HOLDFAST_SERVE_PRESSURE_STALL: "[1,2,97,98,99]",
    HOLDFAST_SERVE_PRESSURE_EVERY_SECONDS: "0.25",
    HOLDFAST_SERVE_PRESSURE_HOLD_SECONDS: "1",
    HOLDFAST_SERVE_SWEEP_EVERY_SECONDS: "1",
  },
});

/** As the operator sees it: whose processes were ended is nobody else's to know. */
const host = async (): Promise<HostInfo> => (await operatorCall<HostInfo>(server, "GET", "/v1/host")).body;

test.skipIf(!existsSync("/proc/pressure/memory"))(
  "a sandbox that wrestles with its limit is told so, and the host, which is not short, stays calm",
  async () => {
    const { body: sandbox } = await server.call<SandboxInfo>("POST", "/v1/sandboxes", {
      limits: { memoryBytes: 32 * MIB },
    });
    const at = `/v1/sandboxes/${sandbox.id}`;
    const stage = async () => (await server.call<SandboxInfo>("GET", at)).body.pressure?.memory;
    const read = "head -c 100000000 /dev/urandom >/home/user/file; while cat /home/user/file >/dev/null; do :; done";
    const { body: command } = await server.call<CommandInfo>("POST", `${at}/commands`, { argv: ["sh", "-c", read] });
    await expect.poll(stage, POLL).toBe("warn");
    const { pressure } = await host();
    expect(pressure.memory).toMatchObject({ stage: "calm", from: "psi", stall: { full: 0 } });
    await server.call("DELETE", `${at}/commands/${command.id}?graceMs=0`);
    await expect.poll(stage, { ...POLL, timeout: patienceMs(60_000) }).toBe("calm");
    const { body } = await server.call<EventList>("GET", `${at}/events?follow=0`);
    const told = body.events.filter(({ kind }) => kind === "pressure").map(({ data }) => data);
    expect(told.filter(({ to }) => to === "warn")).toHaveLength(1);
    expect(told.every(({ source }) => source === "psi")).toBe(true);
    await server.call("DELETE", at);
  },
  patienceMs(120_000),
);

test("processes of an engine that was killed are ended and named; those of a living one are not touched", async () => {
  const plan = { sandboxes: [{ spec: { limits: SMALL_LIMITS }, commands: [{ argv: ["sleep", "1000"] }] }] };
  const owners = [0, 1].map(() => runScript("owner.mjs", [server.stateDirectory, JSON.stringify(plan)]));
  const [first, second] = (await Promise.all(owners.map((owner) => owner.next<{ made: { id: string }[] }>()))).map(
    ({ made }) => made[0]?.id ?? "",
  );
  const named = async () =>
    (await host()).pressure.events.flatMap(({ kind, data }) => (kind === "unowned_ended" ? [data.sandboxId] : []));
  const kill = async (index: number) => {
    owners[index]?.child.kill("SIGKILL");
    await owners[index]?.exited;
  };
  await kill(0);
  await expect.poll(named, POLL).toEqual([first]);
  expect(server.sandboxDirectories()).toEqual([second]);
  expect((await host()).pressure.totals.unownedEnded).toBeGreaterThanOrEqual(2);
  expect(server.log).toContain(first);
  await kill(1);
  await expect.poll(named, POLL).toEqual([first, second]);
  expect(server.sandboxDirectories()).toEqual([]);
});

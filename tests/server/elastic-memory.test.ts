/** Memory limits that grow, as users of the server meet them. */

import type { EventList, HostInfo, SandboxInfo, SandboxUsage } from "@holdfast/protocol";
import { Holdfast } from "@holdfast/sdk";
import { Sandbox as E2bSandbox } from "e2b";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { patienceMs } from "../helpers/scale.js";
import { makeSmallHost } from "../helpers/small-host.js";
import { useServer } from "../helpers/use-server.js";

const MIB = 1024 * 1024;
const small = makeSmallHost({ memoryBytes: 2048 * MIB });
// Before the server's own, because hooks run in reverse.
afterAll(() => small.remove());
const server = useServer({
  env: { HOLDFAST_CGROUP_PARENT: small.parent, HOLDFAST_SERVE_HOLD_SECONDS: "2" },
});
let holdfast: Holdfast;
beforeAll(() => {
  holdfast = new Holdfast({ url: server.url, apiKey: server.apiKey });
});

const needs = (mib: number) => ["node", "-e", `console.log(Buffer.alloc(${mib} * 1048576, 1).length)`];
const eventsOf = async (id: string) =>
  (await server.call<EventList>("GET", `/v1/sandboxes/${id}/events?follow=0`)).body.events;
const scrape = async (name: string) => {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1]);
};

describe("a sandbox with memory: { start, max }", { timeout: patienceMs(60_000) }, () => {
  test("grows while there is room, says so, and is counted", async () => {
    const sandbox = await holdfast.sandboxes.create({ memory: { start: "128m", max: "1g" } });
    const info = await sandbox.info();
    expect(info.limits).toMatchObject({ memoryBytes: 128 * MIB, memoryMaxBytes: 1024 * MIB });
    expect(info.memory).toMatchObject({ requestedBytes: 1024 * MIB, effectiveBytes: 1024 * MIB });
    const averted = await scrape("holdfast_kills_averted_total");
    const ending = await sandbox.run(needs(600));
    expect(ending.cause).toEqual({ kind: "exited", code: 0 });
    const { body: usage } = await server.call<SandboxUsage>("GET", `/v1/sandboxes/${sandbox.id}/usage`);
    expect(usage.memoryLimitBytes).toBeGreaterThan(600 * MIB);
    expect(usage.memoryCeilingBytes).toBe(1024 * MIB);
    const { body: host } = await server.call<HostInfo>("GET", "/v1/host");
    expect(host.reservations.find(({ id }) => id === sandbox.id)?.memoryBytes).toBeGreaterThan(600 * MIB);
    expect((await eventsOf(sandbox.id)).map(({ kind }) => kind)).toContain("memory_grown");
    await expect.poll(() => scrape("holdfast_kills_averted_total")).toBe(averted + 1);
    expect(await scrape("holdfast_grows_total")).toBeGreaterThan(0);
    await sandbox.kill();
  });

  test("that finds no room is killed after a while, with the history of its limit", async () => {
    // It leaves room for half of what is needed.
    const { roomBytes } = (await server.call<HostInfo>("GET", "/v1/host")).body.memory;
    const neighbour = await holdfast.sandboxes.create({ memoryMb: Math.floor(roomBytes / MIB) - 450 });
    const sandbox = await holdfast.sandboxes.create({ memory: { start: "128m", max: "1g" } });
    const ending = await sandbox.run(needs(900));
    expect(ending.cause).toMatchObject({ kind: "out_of_memory", scope: "sandbox" });
    expect(ending.message).toContain("which had moved from 128 MiB");
    expect(ending.message).toContain("It could grow to 1 GiB, but the host had no room.");
    const kinds = (await eventsOf(sandbox.id)).map(({ kind }) => kind);
    expect(kinds).toEqual(expect.arrayContaining(["memory_held", "waiting_for_memory", "memory_let_go"]));
    await Promise.all([neighbour.kill(), sandbox.kill()]);
  });

  test.each([
    [{ start: "1g", max: "128m" }, "limits.memoryMaxBytes"],
    [{ start: "128m", max: "64g" }, "limits.memoryMaxBytes"],
    [{ start: "much", max: "1g" }, "create.memory.start"],
  ])("refuses %j by name", async (memory, field) => {
    await expect(holdfast.sandboxes.create({ memory })).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining(field),
    });
  });

  test("is resized by its ceiling, and by its size", async () => {
    const sandbox = await holdfast.sandboxes.create({ memory: { start: "64m", max: "128m" } });
    expect((await sandbox.resize({ memoryMaxBytes: 512 * MIB })).limits).toMatchObject({
      memoryBytes: 64 * MIB,
      memoryMaxBytes: 512 * MIB,
    });
    expect((await sandbox.run(needs(300))).cause).toEqual({ kind: "exited", code: 0 });
    await sandbox.kill();
  });
});

describe("a sandbox that asks for nothing", { timeout: patienceMs(60_000) }, () => {
  test("starts small, may have its size, and is shown with that", async () => {
    const e2b = await E2bSandbox.create({
      apiKey: server.apiKey,
      apiUrl: server.url,
      sandboxUrl: server.url,
      timeoutMs: 60_000,
    });
    const { body } = await server.call<SandboxInfo>("GET", `/v1/sandboxes/${e2b.sandboxId}`);
    expect(body.limits).toMatchObject({ memoryBytes: 128 * MIB, memoryMaxBytes: 512 * MIB });
    expect((await e2b.getInfo()).memoryMB).toBe(512);
    const meminfo = await e2b.commands.run("awk '/^MemTotal/ {print $2}' /proc/meminfo");
    expect(Number(meminfo.stdout)).toBe(512 * 1024);
    const { exitCode } = await e2b.commands.run(
      needs(300)
        .map((word) => `'${word}'`)
        .join(" "),
    );
    expect(exitCode).toBe(0);
    await e2b.kill();
  });

  test("with a size of its own has it all at once", async () => {
    const sandbox = await holdfast.sandboxes.create({ memoryMb: 300 });
    expect((await sandbox.info()).limits).not.toHaveProperty("memoryMaxBytes");
    await sandbox.kill();
  });
});

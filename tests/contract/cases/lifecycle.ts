import { expect } from "vitest";
import { SANDBOX_MEMORY_BYTES } from "../../helpers/needs-host.js";
import { type Cases, failure, says } from "../cell.js";

/** The server puts the port in; to JavaScript it is nothing special. */
const MASKED_HOST = ["$", "{PORT}.local"].join("");
const HELD_BYTES = 64 * 1024 * 1024;
const ENDED_IN_FLIGHT = "killed or reached its end of life while the request was in flight";

interface ErrorBody {
  readonly code: number;
  readonly message: string;
}

export const lifecycleCases: Cases = {
  "a sandbox tells about itself": async ({ create, server }) => {
    const metadata = { "a key": "with & odd = characters", ünï: "côdé 😀" };
    const sandbox = await create({ metadata, timeoutMs: 100_000, allowInternetAccess: false });
    expect(sandbox.sandboxId).toMatch(/^[a-z0-9]+$/);
    const info = await sandbox.getInfo();
    expect(info).toMatchObject({
      sandboxId: sandbox.sandboxId,
      state: "running",
      metadata,
      allowInternetAccess: false,
      lifecycle: { onTimeout: "kill", autoResume: false },
      volumeMounts: [],
    });
    expect(info.templateId).toBe("base");
    expect(info.cpuCount).toBeGreaterThanOrEqual(1);
    expect(info.memoryMB * 1024 * 1024).toBe(SANDBOX_MEMORY_BYTES);
    expect(info.envdVersion).toMatch(/^\d+\.\d+\.\d+$/);
    expect(Math.abs(Date.now() - info.startedAt.getTime())).toBeLessThan(30_000);
    expect(info.endAt.getTime() - info.startedAt.getTime()).toBeGreaterThan(99_000);
    expect(info.endAt.getTime() - info.startedAt.getTime()).toBeLessThan(130_000);
    expect(info.sandboxDomain).toBe(server.domain ?? undefined);
    expect(await sandbox.isRunning()).toBe(true);
  },

  "a time to live is counted anew from now, and may be shortened": async ({ create }) => {
    const sandbox = await create({ timeoutMs: 60_000 });
    const left = async () => (await sandbox.getInfo()).endAt.getTime() - Date.now();
    await sandbox.setTimeout(500_000);
    expect(await left()).toBeGreaterThan(490_000);
    await sandbox.setTimeout(20_000);
    expect(await left()).toBeLessThan(20_500);
    expect(await left()).toBeGreaterThan(10_000);
  },

  "connecting extends a time to live, and never shortens it": async ({ create, otherClient }) => {
    const sandbox = await create({ timeoutMs: 100_000 });
    const { endAt } = await sandbox.getInfo();
    const elsewhere = await otherClient.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 10_000 });
    expect((await elsewhere.getInfo()).endAt).toEqual(endAt);
    await elsewhere.connect({ timeoutMs: 400_000 });
    expect((await sandbox.getInfo()).endAt.getTime() - Date.now()).toBeGreaterThan(390_000);
    expect((await elsewhere.commands.run("echo there")).stdout).toBe("there\n");
  },

  "a sandbox that was killed is gone, and its end has a reason": async ({ create, client, sdk, server }) => {
    const sandbox = await create();
    expect(await sandbox.kill()).toBe(true);
    expect(await sandbox.isRunning()).toBe(false);
    expect(await sandbox.kill()).toBe(false);
    expect(await failure(sandbox.getInfo())).toBeInstanceOf(sdk.SandboxNotFoundError);
    expect(await failure(client.Sandbox.connect(sandbox.sandboxId))).toBeInstanceOf(sdk.SandboxNotFoundError);
    expect(await failure(sandbox.setTimeout(1000))).toBeInstanceOf(sdk.SandboxNotFoundError);
    expect(await failure(sandbox.commands.run("true"))).toBeInstanceOf(sdk.SandboxError);
    expect(await failure(sandbox.files.read("/etc/passwd"))).toBeInstanceOf(sdk.TimeoutError);
    const { status, body } = await server.call<ErrorBody>("GET", `/sandboxes/${sandbox.sandboxId}`);
    expect(status).toBe(404);
    expect(body).toMatchObject({ code: 404, message: expect.stringMatching(/killed by/i) });
  },

  "a sandbox whose time is up is gone, and says that": async ({ create, sdk, server }) => {
    const sandbox = await create({ timeoutMs: 1000 });
    const command = await sandbox.commands.run("sleep 1000", { background: true });
    const error = await failure(command.wait());
    expect(error).toBeInstanceOf(sdk.TimeoutError);
    expect(error.message).toContain(ENDED_IN_FLIGHT);
    expect(await sandbox.isRunning()).toBe(false);
    const { status, body } = await server.call<ErrorBody>("GET", `/sandboxes/${sandbox.sandboxId}`);
    expect(status).toBe(404);
    expect(body.message).toMatch(/end of its life.*1 ?s/i);
  },

  "a kill breaks what runs, and the client knows why": async ({ create, sdk }) => {
    const sandbox = await create();
    const command = await sandbox.commands.run("echo ready; sleep 1000", { background: true });
    const exits: (Error | undefined)[] = [];
    await sandbox.files.watchDir("/tmp", () => {}, { onExit: (error) => void exits.push(error) });
    const waiting = failure(command.wait());
    await sandbox.kill();
    const error = await waiting;
    expect(error).toBeInstanceOf(sdk.TimeoutError);
    expect(error.message).toContain(ENDED_IN_FLIGHT);
    await expect.poll(() => exits.map((exit) => exit?.message)).toEqual([expect.stringContaining(ENDED_IN_FLIGHT)]);
  },

  "what was never there is not found": async ({ client, sdk }) => {
    const id = "i0123456789abcdefghij";
    expect(await client.Sandbox.kill(id)).toBe(false);
    expect(await client.Sandbox.kill("nonexistingsandbox")).toBe(false);
    expect(await failure(client.Sandbox.getInfo(id))).toBeInstanceOf(sdk.SandboxNotFoundError);
    expect(await failure(client.Sandbox.connect(id))).toBeInstanceOf(sdk.SandboxNotFoundError);
    expect(await failure(client.Sandbox.pause(id))).toBeInstanceOf(sdk.SandboxNotFoundError);
    expect(await failure(client.Sandbox.getMetrics(id))).toBeInstanceOf(sdk.SandboxNotFoundError);
  },

  "network settings are kept and given back": async ({ create }) => {
    const sandbox = await create({
      network: { allowOut: ["10.0.0.0/8", "example.com"], denyOut: ["0.0.0.0/0"], maskRequestHost: MASKED_HOST },
    });
    expect((await sandbox.getInfo()).network).toMatchObject({
      allowOut: ["10.0.0.0/8", "example.com"],
      denyOut: ["0.0.0.0/0"],
      maskRequestHost: MASKED_HOST,
    });
    await sandbox.updateNetwork({ denyOut: ["192.168.0.0/16"] });
    const { network } = await sandbox.getInfo();
    expect(network?.denyOut).toEqual(["192.168.0.0/16"]);
    expect(network?.allowOut ?? []).toEqual([]);
  },

  "metrics show what a sandbox uses": async ({ create }) => {
    const sandbox = await create();
    const holder = await sandbox.commands.run(
      `python3 -c "held = bytearray(${HELD_BYTES}); print('ready', flush=True); input()"`,
      { background: true, stdin: true },
    );
    await says(holder, "ready");
    const memUsed = async () => (await sandbox.getMetrics()).at(-1)?.memUsed ?? 0;
    await expect.poll(memUsed, { timeout: 15_000 }).toBeGreaterThan(HELD_BYTES);
    const metrics = await sandbox.getMetrics({
      start: new Date(Date.now() - 600_000),
      end: new Date(Date.now() + 1000),
    });
    for (const metric of metrics) {
      expect(Math.abs(Date.now() - metric.timestamp.getTime())).toBeLessThan(60_000);
      expect(metric.cpuCount).toBeGreaterThanOrEqual(1);
      expect(metric.cpuUsedPct).toBeGreaterThanOrEqual(0);
      expect(metric.memTotal).toBe(SANDBOX_MEMORY_BYTES);
      expect(metric.memUsed).toBeLessThanOrEqual(metric.memTotal);
      expect(metric.diskTotal).toBeGreaterThan(0);
      expect(metric.diskUsed).toBeLessThan(metric.diskTotal);
    }
    expect(await sandbox.getMetrics({ start: new Date(0), end: new Date(1000) })).toEqual([]);
    await holder.sendStdin("\n");
    await holder.wait();
  },

  "the default time to live is five minutes": async ({ client }) => {
    const sandbox = await client.Sandbox.create();
    try {
      const left = (await sandbox.getInfo()).endAt.getTime() - Date.now();
      expect(left).toBeGreaterThan(290_000);
      expect(left).toBeLessThan(301_000);
    } finally {
      await sandbox.kill();
    }
  },
};

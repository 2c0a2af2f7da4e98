/** Two gigabytes and 400 processes: everybody is served in turn, nobody is lost, and the host itself never runs out. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import type { HostInfo, SandboxList } from "@holdfast/protocol";
import { Holdfast } from "@holdfast/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { patienceMs, scaled } from "../helpers/scale.js";
import { makeSmallHost } from "../helpers/small-host.js";
import { useServer } from "../helpers/use-server.js";

const MIB = 1024 * 1024;
const CREATES = scaled(100, 20);
const small = makeSmallHost({ memoryBytes: 2048 * MIB, pids: 400 });
// Before the server's own, because hooks run in reverse.
afterAll(() => small.remove());
const server = useServer({ env: { HOLDFAST_CGROUP_PARENT: small.parent }, keepsDefaults: true });

/** The server is part of what the host has to carry. */
beforeAll(() => small.take(server.pid));

const host = async (): Promise<HostInfo> => (await server.call<HostInfo>("GET", "/v1/host")).body;

test(`${CREATES} sandboxes of 256 MiB at once all run in turn, and use what they were promised`, {
  timeout: patienceMs(240_000),
}, async () => {
  const holdfast = new Holdfast({ url: server.url, apiKey: server.apiKey });
  const pidsBefore = small.pids();
  let most = 0;
  let together = 0;
  const watch = setInterval(() => {
    void server.call<SandboxList>("GET", "/v1/sandboxes?status=running").then(({ body }) => {
      together = Math.max(together, body.sandboxes.length);
    });
    void host().then(({ memory, pids }) => {
      // Not the room of the moment, which the server's own growth makes smaller after the fact.
      expect(memory.promisedBytes).toBeLessThanOrEqual(memory.mostBytes);
      most = Math.max(most, pids.used);
    });
  }, 200);
  const one = async (): Promise<string> => {
    const sandbox = await holdfast.sandboxes.create({ memoryMb: 256, waitMs: 600_000, timeoutMs: 600_000 });
    const { cause, stdout } = await sandbox.run(["node", "-e", `console.log(Buffer.alloc(${150 * MIB}, 1).length)`]);
    await sandbox.kill();
    return `${cause.kind} ${stdout.trim()}`;
  };
  try {
    const results = await Promise.all(Array.from({ length: CREATES }, one));
    expect(results).toEqual(Array.from({ length: CREATES }, () => `exited ${150 * MIB}`));
  } finally {
    clearInterval(watch);
  }
  // They did run side by side, as many as there was room for.
  expect(together).toBeGreaterThan(1);
  expect(most).toBeLessThanOrEqual(400);
  expect(small.oomKills()).toBe(0);
  const { reservations, waiting, warm } = await host();
  expect([reservations.filter(({ kind }) => kind !== "warm"), waiting]).toEqual([[], 0]);
  // The server itself, and what it keeps ready.
  expect(small.pids()).toBeLessThanOrEqual(pidsBefore + 4 * warm.ready + 4);
});

test("of all processes the server's is the last that the kernel would take for memory", async () => {
  const scoreOf = (pid: number) => Number(readFileSync(`/proc/${pid}/oom_score_adj`, "utf8"));
  const sandbox = await new Holdfast({ url: server.url, apiKey: server.apiKey }).sandboxes.create();
  const { stdout } = await sandbox.run("cat /proc/self/oom_score_adj; echo -500 >/proc/self/oom_score_adj; echo $?");
  // Where the host lets it: not in a container that lacks CAP_SYS_RESOURCE.
  const may = spawnSync("sh", ["-c", "echo -500 >/proc/self/oom_score_adj"]).status === 0;
  expect(scoreOf(server.pid)).toBe(may ? -500 : scoreOf(process.pid));
  expect(stdout).toBe("300\n1\n");
  await sandbox.kill();
});

test("a sandbox that asks for nothing fits", async () => {
  const { status, body } = await server.call<{ id: string; limits: { pids: number } }>("POST", "/v1/sandboxes", {});
  expect(status).toBe(201);
  expect(body.limits.pids).toBe(100);
});

/** What an image is there to run may take long to come up, or never do: nobody but whoever waits for it is held up. */
import { Holdfast, HoldfastError, Image, type Sandbox } from "@holdfast/sdk";
import { afterEach, beforeAll, expect, test } from "vitest";
import { importTiny } from "../helpers/import-tiny.js";
import { patienceMs } from "../helpers/scale.js";
import { useServer } from "../helpers/use-server.js";

const READY_MS = 2000;
const BUILDER = { memoryMb: 128, diskMb: 200, runtimeMemoryMb: 32, network: "off" } as const;
/** Ready in a while, unless it is told not to be. What is in memory is gone after a boot. */
const START = `sleep ${READY_MS / 1000}; test -e /stuck || test -n "$STUCK" || touch /dev/shm/up; exec sleep 1000`;

const server = useServer({ args: ["--drain-seconds", "1"] });
let sandboxes: Sandbox[] = [];

const holdfast = () => new Holdfast({ url: server.url, apiKey: server.apiKey });

beforeAll(async () => {
  await importTiny(server);
  const image = Image.from("tiny").builder(BUILDER).startCommand(START, { readyWhen: "test -e /dev/shm/up" });
  await holdfast().images.build(image, { name: "slow" });
}, patienceMs(60_000));

afterEach(async () => {
  await Promise.all(sandboxes.map((sandbox) => sandbox.kill().catch(() => {})));
  sandboxes = [];
});

async function create(options: Parameters<Holdfast["sandboxes"]["create"]>[0] = {}): Promise<Sandbox> {
  const sandbox = await holdfast().sandboxes.create({ image: "slow", memoryMb: 64, ...options });
  sandboxes.push(sandbox);
  return sandbox;
}

/** Its files are there, and it is being booted from them; what it is there to run never comes up. */
async function stuck(timeoutMs = 600_000): Promise<{ readonly sandbox: Sandbox; readonly resuming: Promise<unknown> }> {
  const sandbox = await create();
  await sandbox.run(["/bin/touch", "/stuck"]);
  await sandbox.pause({ memory: false });
  const resuming = sandbox.resume({ timeoutMs }).catch((error: unknown) => HoldfastError.from(error));
  await expect.poll(async () => (await sandbox.info()).status, { timeout: patienceMs(5000) }).toBe("running");
  return { sandbox, resuming };
}

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  const began = performance.now();
  const result = await work;
  expect(performance.now() - began).toBeLessThan(ms);
  return result;
}

test("a sandbox whose start command does not come up after a boot can be kept alive, paused and ended", {
  timeout: patienceMs(60_000),
}, async () => {
  const { sandbox, resuming } = await stuck();
  const { expiresAt } = await within(patienceMs(2000), sandbox.setTimeout(300_000));
  expect(Date.parse(expiresAt ?? "") - Date.now()).toBeLessThan(300_001);
  expect((await within(patienceMs(2000), sandbox.pause({ memory: false }))).status).toBe("paused");
  await within(patienceMs(2000), resuming);
  const again = sandbox.resume().catch((error: unknown) => HoldfastError.from(error));
  await expect.poll(async () => (await sandbox.info()).status, { timeout: patienceMs(5000) }).toBe("running");
  expect((await within(patienceMs(2000), sandbox.kill())).cause).toMatchObject({ kind: "killed" });
  expect(await within(patienceMs(2000), again)).toMatchObject({ code: "sandbox_ended" });
});

test("such a sandbox ends when its time is up", { timeout: patienceMs(60_000) }, async () => {
  const { sandbox } = await stuck(1500);
  await expect.poll(async () => (await sandbox.info()).status, { timeout: patienceMs(5000) }).toBe("ended");
  expect((await sandbox.info()).ending?.cause).toEqual({ kind: "timed_out", limitMs: 1500 });
});

test("a create whose time is up before its start command has come up says so", {
  timeout: patienceMs(60_000),
}, async () => {
  const creating = within(patienceMs(5000), create({ env: { STUCK: "1" }, timeoutMs: 1500 }));
  await expect(creating).rejects.toMatchObject({ code: "sandbox_ended" });
});

test("the start commands of forks come up side by side", { timeout: patienceMs(60_000) }, async () => {
  const original = await create();
  const began = performance.now();
  const forks = await original.fork({ count: 5 });
  sandboxes.push(...forks);
  const tookMs = performance.now() - began;
  expect(forks).toHaveLength(5);
  expect(tookMs).toBeGreaterThanOrEqual(READY_MS);
  expect(tookMs).toBeLessThan(3 * READY_MS);
});

test("a server that is told to stop waits for no start command", { timeout: patienceMs(60_000) }, async () => {
  const creating = create({ env: { STUCK: "1" } }).catch((error: unknown) => HoldfastError.from(error));
  const list = () => server.call<{ sandboxes: readonly unknown[] }>("GET", "/v1/sandboxes?status=running");
  await expect.poll(async () => (await list()).body.sandboxes.length, { timeout: patienceMs(5000) }).toBe(1);
  await within(patienceMs(4000), server.stop());
  await server.restart();
  await creating;
  expect((await list()).body.sandboxes).toEqual([]);
  expect(server.log.split("\n").filter((line) => /"level":(50|60)/.test(line))).toEqual([]);
});

test("a guess of so many seconds is not waited for where nothing ever listens, and cut short where something does", {
  timeout: patienceMs(90_000),
}, async () => {
  const seconds = 8;
  const guess = { readyWhen: { seconds } };
  const from = Image.from("tiny").builder(BUILDER);
  const silent = from.startCommand("touch /dev/shm/up; exec sleep 1000", guess);
  const listening = from.startCommand("while true; do echo hi | nc -l -p 8000; done", guess);
  // At once: a build waits for its own guess to its end.
  await Promise.all([
    holdfast().images.build(silent, { name: "silent" }),
    holdfast().images.build(listening, { name: "listening" }),
  ]);
  const first = await within((seconds * 1000) / 2, create({ image: "silent" }));
  // It is started all the same.
  const isUp = async () => (await first.run(["/bin/test", "-e", "/dev/shm/up"])).exitCode;
  await expect.poll(isUp, { timeout: patienceMs(5000) }).toBe(0);
  const second = await within((seconds * 1000) / 2, create({ image: "listening" }));
  expect((await second.run(["/bin/sh", "-c", "grep -c ' 0A ' /proc/net/tcp /proc/net/tcp6"])).exitCode).toBe(0);
});

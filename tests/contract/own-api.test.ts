/** Our own API with its client, over a real server with real sandboxes. */
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type Command, Holdfast, HoldfastError, type OutputItem, type SandboxEvent } from "@holdfast/sdk";
import { beforeAll, describe, expect, test } from "vitest";
import { useServer } from "../helpers/use-server.js";

const server = useServer();
let holdfast: Holdfast;

beforeAll(() => {
  holdfast = new Holdfast({ url: server.url, apiKey: server.apiKey });
});

async function readAll(command: Command, from = {}): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const item of command.output(from)) {
    if (item.type === "gap") throw new Error(`gap at ${item.offset} of ${item.length}`);
    parts.push(item.bytes);
  }
  return Buffer.concat(parts);
}

test("run gives causes, limits, input", async () => {
  const sandbox = await holdfast.sandboxes.create({ env: { GREETING: "hi" }, metadata: { a: "b=c&d" } });
  const hello = await sandbox.run("echo $GREETING $X; pwd; echo err >&2; exit 3", { env: { X: "y" }, cwd: "/tmp" });
  expect(hello).toMatchObject({
    exitCode: 3,
    cause: { kind: "exited", code: 3 },
    stdout: "hi y\n/tmp\n",
    stderr: "err\n",
  });
  expect((await sandbox.run(["cat"], { stdin: "größer" })).stdout).toBe("größer");
  expect((await sandbox.run("sleep 60", { timeoutMs: 200, graceMs: 100 })).cause).toEqual({
    kind: "timed_out",
    limitMs: 200,
  });
  expect(
    (await sandbox.run("head -c 100 /dev/zero | tail", { limits: { memoryBytes: 64 * 1024 * 1024 } })).exitCode,
  ).toBe(0);
  expect((await sandbox.run("tail /dev/zero", { limits: { memoryBytes: 32 * 1024 * 1024 } })).cause.kind).toBe(
    "out_of_memory",
  );
  await expect(sandbox.run(["/no/such"])).rejects.toMatchObject({ code: "command_failed_to_start" });
  await expect(sandbox.run("true", { user: "nobody-such" })).rejects.toMatchObject({ code: "user_not_found" });
  const list = [];
  for await (const info of holdfast.sandboxes.list({ metadata: { a: "b=c&d" } })) list.push(info.id);
  expect(list).toEqual([sandbox.id]);
  expect((await sandbox.commands())[0]).toMatchObject({ ending: { cause: { kind: "out_of_memory" } } });
  await sandbox.kill();
  expect(await sandbox.info()).toMatchObject({ status: "ended", ending: { cause: { kind: "killed" } } });
  expect((await sandbox.kill()).cause.kind).toBe("killed");
  await expect(sandbox.run("true")).rejects.toMatchObject({ code: "sandbox_ended" });
  expect((await sandbox.postmortem()).commands.length).toBeGreaterThan(1);
});

test("a large output to a slow reader is whole", async () => {
  const sandbox = await holdfast.sandboxes.create();
  const hash = createHash("sha256");
  let calls = 0;
  const result = await sandbox.run("seq 1 2000000; sha256sum <(seq 1 2000000) >&2", {
    onStdout: async (text) => {
      hash.update(text);
      calls += 1;
      if (calls % 50 === 0) await sleep(20);
    },
  });
  expect(result.stderr.split(" ")[0]).toBe(hash.digest("hex"));
  expect(result.truncated).toEqual({ stdout: true, stderr: false });
  await sandbox.kill();
});

test("run, output and events go on over a restart", async () => {
  const sandbox = await holdfast.sandboxes.create();
  const seen: SandboxEvent[] = [];
  const following = (async () => {
    for await (const event of sandbox.events()) seen.push(event);
  })();
  const script = "for i in $(seq 1 300); do echo line $i; echo e$i >&2; sleep 0.01; done";
  const running = sandbox.run(script);
  const command = await sandbox.start(script);
  const reading = readAll(command);
  const waiting = command.wait();
  for (let i = 0; i < 3; i += 1) {
    await sleep(600);
    await server.kill(i === 1 ? "SIGTERM" : "SIGKILL");
    await server.restart();
  }
  const result = await running;
  const expected = Array.from({ length: 300 }, (_, i) => `line ${i + 1}\n`).join("");
  expect(result.stdout).toBe(expected);
  expect(result.message).toBe("Finished.");
  expect((await reading).length).toBe(result.stdout.length + result.stderr.length);
  expect((await waiting).message).toBe("Finished.");
  await sandbox.kill();
  await following;
  expect(seen[0]?.kind).toBe("created");
  expect(seen.at(-1)?.kind).toBe("ended");
  expect(seen.map(({ seq }) => seq)).toEqual([...new Set(seen.map(({ seq }) => seq))].sort((a, b) => a - b));
  expect(seen.filter(({ kind }) => kind === "command_ended")).toHaveLength(2);
}, 60_000);

test("files move both ways", async () => {
  const sandbox = await holdfast.sandboxes.create();
  const size = 60 * 1024 * 1024;
  const chunk = Buffer.alloc(1024 * 1024, "abcdefg");
  let left = size;
  const sent = createHash("sha256");
  const source = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (left === 0) {
        controller.close();
        return;
      }
      left -= chunk.length;
      sent.update(chunk);
      controller.enqueue(new Uint8Array(chunk));
    },
  });
  const info = await sandbox.files.write("/tmp/deep/er/big", source, { mode: 0o600 });
  expect(info).toMatchObject({ path: "/tmp/deep/er/big", sizeBytes: size, type: "file" });
  expect(info.mode & 0o777).toBe(0o600);
  const got = createHash("sha256");
  for await (const part of await sandbox.files.read("/tmp/deep/er/big", { as: "stream" })) got.update(part);
  expect(got.digest("hex")).toBe(sent.digest("hex"));
  expect(await sandbox.files.read("/tmp/deep/er/big", { offset: 7, length: 3 })).toBe("abc");
  expect(await sandbox.files.read("/proc/self/status")).toContain("Name:");
  await expect(sandbox.files.read("/nowhere")).rejects.toMatchObject({ code: "file_not_found" });
  await expect(sandbox.files.read("/tmp")).rejects.toMatchObject({ code: "file_wrong_type" });
  await expect(sandbox.files.write("/usr/x", "1", { user: "user" })).rejects.toMatchObject({
    code: "file_access_denied",
  });
  expect(await sandbox.files.write("/tmp/empty", "")).toMatchObject({ sizeBytes: 0 });
  expect(await sandbox.files.read("/tmp/empty")).toBe("");

  const leaving = new AbortController();
  const watch = await sandbox.files.watch("/tmp/deep", { recursive: true, signal: leaving.signal });
  const first = watch.next();
  await sandbox.files.move("/tmp/deep/er/big", "/tmp/deep/er/bigger");
  expect((await first).value).toMatchObject({ name: expect.stringContaining("er/big") });
  leaving.abort();
  await expect(
    watch
      .next()
      .then(() => watch.next())
      .then(() => watch.next())
      .then(() => watch.next()),
  ).rejects.toMatchObject({ code: "canceled" });

  await sandbox.files.makeDirectory("/tmp/many");
  await sandbox.run("cd /tmp/many; touch $(seq 1 3000)");
  let count = 0;
  for await (const entry of sandbox.files.list("/tmp/many")) if (entry.type === "file") count += 1;
  expect(count).toBe(3000);
  await expect(sandbox.files.list("/nowhere").next()).rejects.toMatchObject({ code: "file_not_found" });
  await expect(sandbox.files.remove("/tmp/many")).rejects.toMatchObject({ code: "file_exists" });
  expect(await sandbox.files.remove("/tmp/many", { recursive: true })).toBe(3001);
  expect(await sandbox.files.exists("/tmp/many")).toBe(false);
  await sandbox.kill();
}, 60_000);

test("a refused upload is told while it goes on", async () => {
  const sandbox = await holdfast.sandboxes.create({ limits: { diskBytes: 8 * 1024 * 1024 } });
  const endless = () =>
    new ReadableStream<Uint8Array>({ pull: (controller) => controller.enqueue(new Uint8Array(256 * 1024)) });
  await expect(sandbox.files.write("/usr/x", endless(), { user: "user" })).rejects.toMatchObject({
    code: "file_access_denied",
  });
  await expect(sandbox.files.write("/tmp/x", endless())).rejects.toMatchObject({ code: "no_space" });
  const other = await holdfast.sandboxes.create({ limits: { diskBytes: 8 * 1024 ** 3 } });
  const writing = other.files.write("/tmp/x", endless());
  writing.catch(() => {});
  await sleep(300);
  await other.kill();
  await expect(writing).rejects.toMatchObject({ code: "sandbox_ended" });
  await sandbox.kill();
}, 60_000);

describe("pause", () => {
  test("cuts streams and says why; output goes on after it", async () => {
    const sandbox = await holdfast.sandboxes.create({ autoResume: true });
    const command = await sandbox.start("for i in $(seq 1 100); do echo $i; sleep 0.02; done");
    const parts: Uint8Array[] = [];
    let offset = 0;
    const read = async (output: AsyncGenerator<OutputItem>) => {
      for await (const item of output) {
        if (item.type === "gap") throw new Error("gap");
        parts.push(item.bytes);
        offset = item.offset + item.bytes.length;
      }
    };
    const reading = read(command.output());
    reading.catch(() => {});
    await sleep(300);
    expect(await sandbox.pause()).toMatchObject({ status: "paused", memoryKept: true });
    await expect(reading).rejects.toMatchObject({ code: "sandbox_paused" });
    expect(await sandbox.info()).toMatchObject({ status: "paused" });
    expect((await sandbox.usage()).memoryBytes).toBeGreaterThan(0);
    await sandbox.resume({ timeoutMs: 60_000 });
    await read(command.output({ stdout: offset }));
    expect(Buffer.concat(parts).toString()).toBe(Array.from({ length: 100 }, (_, i) => `${i + 1}\n`).join(""));

    await sandbox.files.write("/home/user/kept", "kept");
    const ended = (await sandbox.start("sleep 100")).wait();
    await sleep(100);
    await sandbox.pause({ memory: false });
    expect((await ended).cause.kind).toBe("canceled");
    expect(await sandbox.files.read("/home/user/kept")).toBe("kept");
    expect(await sandbox.info()).toMatchObject({ status: "running", boots: 2 });
    await sandbox.kill();
  });
});

test("a command of a killed sandbox ends with its cause", async () => {
  const sandbox = await holdfast.sandboxes.create();
  const running = sandbox.run("echo begun; sleep 100");
  const waiting = (await sandbox.start("sleep 50")).wait();
  await sleep(300);
  await sandbox.kill();
  const result = await running;
  expect(result.stdout).toBe("begun\n");
  expect(result.cause.kind).toBe("canceled");
  expect((await waiting).cause.kind).toBe("canceled");
});

test("commands are fed, signalled, resized and ended", async () => {
  const sandbox = await holdfast.sandboxes.create();
  const cat = await sandbox.start(["cat"], { stdin: "open", tag: "cat" });
  await Promise.all([cat.stdin.write("one "), cat.stdin.write("two "), cat.stdin.write(new Blob(["three"]).stream())]);
  await cat.stdin.close();
  expect((await readAll(cat)).toString()).toBe("one two three");
  expect((await cat.ended).exitCode).toBe(0);
  await expect(cat.stdin.write("x")).rejects.toMatchObject({ code: "command_not_found" });
  const sleeper = await sandbox.start("sleep 100");
  await sleeper.signal("SIGUSR1", { whole: true });
  expect((await sleeper.wait()).cause).toMatchObject({ kind: "signaled", signal: "SIGUSR1", by: "caller" });
  const other = await sandbox.start("sleep 100");
  expect((await (await sandbox.command(other.id)).cancel({ graceMs: 10 })).cause).toMatchObject({ kind: "canceled" });
  expect((await other.cancel()).cause.kind).toBe("canceled");
  const pty = await sandbox.start("sleep 0.3; stty size", { pty: { columns: 80, rows: 24 } });
  await pty.resize({ columns: 100, rows: 30 });
  expect((await readAll(pty)).toString()).toContain("30 100");
  await expect(sandbox.command(999)).rejects.toMatchObject({ code: "command_not_found" });
  const leaving = new AbortController();
  setTimeout(() => leaving.abort(), 200);
  await expect(sandbox.run("sleep 100", { signal: leaving.signal })).rejects.toBeInstanceOf(HoldfastError);
  expect((await sandbox.commands())[0]?.ending?.cause.kind).toBe("canceled");
  await sandbox.kill();
});

test("limits, time, usage, host, idempotency", async () => {
  const options = { idempotencyKey: "only-one" };
  const [a, b] = await Promise.all([holdfast.sandboxes.create(options), holdfast.sandboxes.create(options)]);
  expect(a.id).toBe(b.id);
  expect((await a.resize({ memoryBytes: 256 * 1024 * 1024, pids: 100 })).limits).toMatchObject({
    memoryBytes: 256 * 1024 * 1024,
    pids: 100,
  });
  expect(await a.usage()).toMatchObject({ memoryLimitBytes: 256 * 1024 * 1024, pidsLimit: 100, cpuLimitMillis: 2000 });
  const before = Date.now();
  const { expiresAt } = await a.setTimeout(100_000);
  expect(Date.parse(expiresAt ?? "") - before).toBeGreaterThan(99_000);
  const host = await holdfast.host();
  expect(host.sandboxes.running).toBe(1);
  await a.setTimeout(50);
  const kinds: string[] = [];
  for await (const { kind } of a.events()) kinds.push(kind);
  expect(kinds).toEqual(["created", "resized", "timeout_changed", "timeout_changed", "ending", "ended"]);
  const again: string[] = [];
  for await (const { kind } of a.events({ follow: false })) again.push(kind);
  expect(again).toEqual(kinds);
  expect((await a.info()).ending?.cause.kind).toBe("timed_out");
  const last: string[] = [];
  for await (const { kind } of a.events({ tail: 1 })) last.push(kind);
  expect(last).toEqual(["ended"]);
});

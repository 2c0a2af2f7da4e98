import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type CommandEnding, createSandboxId, parseSandboxId, type SandboxId } from "@holdfast/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { ApiKey, CommandRow, SampleRow, SandboxRow, Store } from "../store.js";
import { openSqliteStore } from "./open-sqlite-store.js";
import { newEvent, STRANGE, sandboxEnding, sandboxRow, T0 } from "./testing/rows.js";

const COMMAND_ENDING: CommandEnding = {
  cause: { kind: "exited", code: 3 },
  incidents: [{ kind: "out_of_pids", limit: 8, peak: null, refused: 2 }],
  exitCode: 3,
  usage: { memoryPeakBytes: 1, cpuMs: 2, wallMs: 3, pidsPeak: 4, stdoutBytes: 5, stderrBytes: 6 },
  message: "exited with 3",
};

function commandRow(sandboxId: SandboxId, id: number, change: Partial<CommandRow> = {}): CommandRow {
  return {
    sandboxId,
    id,
    pid: 100 + id,
    argv: ["sh", "-c", ...STRANGE],
    env: Object.fromEntries(STRANGE.map((text, index) => [`V${index}`, text])),
    cwd: "/home/user",
    user: null,
    tag: "a\0tag",
    pty: false,
    startedAt: new Date(T0 + id),
    endedAt: null,
    ending: null,
    ...change,
  };
}

function apiKey(id: string, change: Partial<ApiKey> = {}): ApiKey {
  return {
    id,
    name: `key ${id}`,
    secretHash: id.padEnd(64, "0"),
    hint: "e2b_12…89",
    createdAt: new Date(T0),
    revokedAt: null,
    limits: { sandboxes: 5, memoryBytes: 2 ** 40, requestsPerSecond: 0.5 },
    ...change,
  };
}

let directory: string;
let store: Store;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "holdfast-store-"));
  store = await openSqliteStore(join(directory, "holdfast.db"));
});

afterEach(async () => {
  await store.close();
  await rm(directory, { recursive: true, force: true });
});

async function insertSandbox(change: Partial<SandboxRow> = {}): Promise<SandboxRow> {
  const row = sandboxRow(change);
  await store.sandboxes.insert(row);
  return row;
}

describe("keys", () => {
  test("are found by id and by hash as they were written", async () => {
    const key = apiKey("k1", { limits: { sandboxes: null, memoryBytes: null, requestsPerSecond: null } });
    await store.keys.insert(key);
    await store.keys.insert(apiKey("k2"));
    expect(await store.keys.find("k1")).toEqual(key);
    expect(await store.keys.findByHash(apiKey("k2").secretHash)).toEqual(apiKey("k2"));
    expect(await store.keys.find("k3")).toBeUndefined();
    expect(await store.keys.findByHash("k2")).toBeUndefined();
    expect((await store.keys.list()).map(({ id }) => id)).toEqual(["k1", "k2"]);
  });

  test("are revoked once", async () => {
    await store.keys.insert(apiKey("k1"));
    expect(await store.keys.revoke("k1", new Date(T0 + 5))).toBe(true);
    expect(await store.keys.revoke("k1", new Date(T0 + 9))).toBe(false);
    expect(await store.keys.revoke("k9", new Date(T0 + 9))).toBe(false);
    expect((await store.keys.find("k1"))?.revokedAt).toEqual(new Date(T0 + 5));
  });

  test("get other limits", async () => {
    await store.keys.insert(apiKey("k1"));
    const limits = { sandboxes: 1, memoryBytes: null, requestsPerSecond: 7 };
    expect(await store.keys.setLimits("k1", limits)).toBe(true);
    expect(await store.keys.setLimits("k2", limits)).toBe(false);
    expect((await store.keys.find("k1"))?.limits).toEqual(limits);
  });

  test("with the same hash are refused", async () => {
    await store.keys.insert(apiKey("k1"));
    await expect(store.keys.insert(apiKey("k2", { secretHash: apiKey("k1").secretHash }))).rejects.toThrow("UNIQUE");
  });
});

describe("events", () => {
  test("are listed after a number, by key and by sandbox, either way round", async () => {
    const a = await insertSandbox({ keyId: "k1" });
    const b = await insertSandbox({ keyId: "k2" });
    expect(await store.events.lastSeq()).toBe(0);
    for (let index = 0; index < 6; index++) {
      const { id, keyId } = index % 3 === 0 ? b : a;
      await store.events.append({ ...newEvent("resized"), sandboxId: id, keyId });
    }
    const list = async (query: Partial<Parameters<Store["events"]["list"]>[0]>) =>
      (await store.events.list({ limit: 100, ...query })).map(({ seq }) => seq);
    expect(await list({})).toEqual([1, 2, 3, 4, 5, 6]);
    expect(await list({ after: 4 })).toEqual([5, 6]);
    expect(await list({ after: 1, limit: 2 })).toEqual([2, 3]);
    expect(await list({ keyId: "k2" })).toEqual([1, 4]);
    expect(await list({ sandboxId: a.id, after: 2, newestFirst: true })).toEqual([6, 5, 3]);
    expect(await list({ sandboxId: a.id, keyId: "k2" })).toEqual([]);
    expect(await store.events.lastSeq()).toBe(6);
  });

  test("of a sandbox that is not there are refused", async () => {
    const event = { ...newEvent("ended"), sandboxId: parseSandboxId("missing"), keyId: "k1" };
    await expect(store.events.append(event)).rejects.toMatchObject({ code: "sandbox_not_found" });
  });
});

describe("commands", () => {
  const keyId = "k000000000001";

  test("come back as they were written, newest first", async () => {
    const { id } = await insertSandbox();
    const rows = [commandRow(id, 1), commandRow(id, 2, { pty: true, cwd: null, tag: null, user: "root" })];
    for (const row of rows) await store.commands.insert(row, { ...newEvent("command_started"), keyId });
    expect(await store.commands.list(id)).toEqual(rows.toReversed());
    expect(await store.commands.list(id, { limit: 1 })).toEqual(rows.slice(1));
    expect(await store.commands.find(id, 1)).toEqual(rows[0]);
    expect(await store.commands.find(id, 3)).toBeUndefined();
    expect(await store.events.list({ limit: 9 })).toHaveLength(2);
  });

  test("end once, with one event", async () => {
    const { id } = await insertSandbox();
    await store.commands.insert(commandRow(id, 1), { ...newEvent("command_started"), keyId });
    await store.commands.insert(commandRow(id, 2), { ...newEvent("command_started"), keyId });
    const end = (command: number, at: number) =>
      store.commands.end(id, command, COMMAND_ENDING, new Date(at), { ...newEvent("command_ended"), keyId });
    const endings = await Promise.all([end(1, T0 + 50), end(1, T0 + 60), end(7, T0)]);
    expect(endings.map((event) => event?.seq)).toEqual([3, undefined, undefined]);
    expect(await store.commands.find(id, 1)).toMatchObject({ endedAt: new Date(T0 + 50), ending: COMMAND_ENDING });
    expect((await store.commands.list(id, { unended: true })).map((row) => row.id)).toEqual([2]);
    expect(await store.events.lastSeq()).toBe(3);
  });

  test("are forgotten when there are very many newer ones, with their events, unless they still run", async () => {
    const { id } = await insertSandbox();
    const start = (command: number) =>
      store.commands.insert(commandRow(id, command, { startedAt: new Date(T0 + command) }), {
        ...newEvent("command_started"),
        keyId,
      });
    for (const command of [1, 2, 752]) await start(command);
    await store.commands.end(id, 1, COMMAND_ENDING, new Date(T0), { ...newEvent("command_ended"), keyId });
    await start(10_752);
    expect((await store.commands.list(id)).map((row) => row.id)).toEqual([10_752, 752, 2]);
  });

  test("of a new boot take the place of those with the same number", async () => {
    const { id } = await insertSandbox();
    await store.commands.insert(commandRow(id, 1), { ...newEvent("command_started"), keyId });
    await store.commands.end(id, 1, COMMAND_ENDING, new Date(), { ...newEvent("command_ended"), keyId });
    const again = commandRow(id, 1, { pid: 999, startedAt: new Date(T0 + 1000) });
    await store.commands.insert(again, { ...newEvent("command_started"), keyId });
    expect(await store.commands.list(id)).toEqual([again]);
  });

  test("of a sandbox that is not there are refused, with their event", async () => {
    const insert = store.commands.insert(commandRow(parseSandboxId("missing"), 1), {
      ...newEvent("command_started"),
      keyId,
    });
    await expect(insert).rejects.toMatchObject({ code: "sandbox_not_found" });
    expect(await store.events.lastSeq()).toBe(0);
  });
});

function sample(sandboxId: SandboxId, millis: number): SampleRow {
  return {
    sandboxId,
    at: new Date(T0 + millis),
    cpuCount: 1.5,
    cpuUsedPct: 33.25,
    memoryBytes: 2 ** 33,
    memoryLimitBytes: 2 ** 34,
    memoryCacheBytes: 0,
    diskBytes: millis,
    diskLimitBytes: 2 ** 42,
  };
}

function claim(token: string, sandboxId: SandboxId) {
  return { keyId: "k1", token, requestHash: "hash", sandboxId, createdAt: new Date(T0) };
}

function postmortem(id: SandboxId): Parameters<Store["postmortems"]["put"]>[1] {
  return { ending: sandboxEnding(id), processes: [], counters: { "memory.peak": 5, gone: null }, commands: [] };
}

describe("the rest", () => {
  test("a removed sandbox takes everything about it along, and event numbers are not given again", async () => {
    const gone = await insertSandbox({ metadata: { a: "b" } });
    const kept = await insertSandbox({ metadata: { a: "b" } });
    for (const { id, keyId } of [kept, gone]) {
      await store.commands.insert(commandRow(id, 1), { ...newEvent("command_started"), keyId });
      await store.samples.insert([sample(id, 0)]);
      await store.postmortems.put(id, postmortem(id));
      await store.idempotency.claim(claim(id, id));
    }
    const last = await store.events.lastSeq();
    await store.sandboxes.remove(gone.id);
    await store.sandboxes.remove(gone.id);
    expect(await store.sandboxes.find(gone.id)).toBeUndefined();
    expect((await store.sandboxes.list({ metadata: { a: "b" }, limit: 9 })).map(({ id }) => id)).toEqual([kept.id]);
    expect(await store.commands.list(gone.id)).toEqual([]);
    expect(await store.postmortems.find(gone.id)).toBeUndefined();
    expect(await store.samples.latest([gone.id, kept.id])).toHaveLength(1);
    expect((await store.events.list({ limit: 9 })).map(({ sandboxId }) => sandboxId)).toEqual([kept.id]);
    expect((await store.idempotency.claim(claim(gone.id, kept.id))).sandboxId).toBe(kept.id);
    expect(await store.events.lastSeq()).toBe(last);
    expect((await store.sandboxes.apply(kept.id, {}, newEvent("adopted"))).seq).toBe(last + 1);
  });

  test("samples are listed by time, and the latest of each is found", async () => {
    const [a, b] = [createSandboxId(), createSandboxId()];
    await store.samples.insert([3, 1, 2].flatMap((millis) => [sample(a, millis), sample(b, millis * 10)]));
    await store.samples.insert([{ ...sample(a, 3), diskBytes: 77 }]);
    await store.samples.insert([]);
    const range = { from: new Date(T0 + 1), to: new Date(T0 + 2), limit: 10 };
    expect(await store.samples.list(a, range)).toEqual([sample(a, 1), sample(a, 2)]);
    expect(await store.samples.list(a, { limit: 1 })).toEqual([sample(a, 1)]);
    const latest = await store.samples.latest([b, a, b, createSandboxId()]);
    expect(latest).toHaveLength(2);
    expect(latest).toEqual(expect.arrayContaining([sample(a, 3), sample(b, 30)]));
    expect(await store.samples.latest([])).toEqual([]);
    await store.samples.removeBefore(new Date(T0 + 3));
    expect(await store.samples.list(a, { limit: 9 })).toEqual([sample(a, 3)]);
    expect(await store.samples.list(b, { limit: 9 })).toHaveLength(3);
  });

  test("a batch of many samples is stored whole", async () => {
    const ids = Array.from({ length: 730 }, () => createSandboxId());
    await store.samples.insert(ids.map((id) => sample(id, 1)));
    expect(await store.samples.latest(ids)).toHaveLength(730);
  });

  test("a post-mortem is put, replaced and found", async () => {
    const { id } = await insertSandbox();
    expect(await store.postmortems.find(id)).toBeUndefined();
    await store.postmortems.put(id, postmortem(id));
    const second = { ...postmortem(id), counters: { pids: 1 } };
    await store.postmortems.put(id, second);
    expect(await store.postmortems.find(id)).toEqual(second);
    const missing = parseSandboxId("missing");
    await expect(store.postmortems.put(missing, second)).rejects.toMatchObject({ code: "sandbox_not_found" });
  });

  test("an idempotency token belongs to the first who claims it, for each key by itself", async () => {
    const [first, second] = [createSandboxId(), createSandboxId()];
    const claims = await Promise.all([first, second].map((id) => store.idempotency.claim(claim("t", id))));
    expect(claims).toEqual([claim("t", first), claim("t", first)]);
    const other = { ...claim("t", second), keyId: "k2" };
    expect(await store.idempotency.claim(other)).toEqual(other);
    await store.idempotency.releaseFor(first);
    expect((await store.idempotency.claim(claim("t", second))).sandboxId).toBe(second);
    await store.idempotency.removeBefore(new Date(T0));
    expect((await store.idempotency.claim(claim("t", first))).sandboxId).toBe(second);
    await store.idempotency.removeBefore(new Date(T0 + 1));
    expect((await store.idempotency.claim(claim("t", first))).sandboxId).toBe(first);
  });

  test("a setting is put once", async () => {
    expect(await store.settings.get("secret")).toBeUndefined();
    expect(await store.settings.putIfAbsent("secret", "a")).toBe("a");
    expect(await store.settings.putIfAbsent("secret", "b")).toBe("a");
    expect(await store.settings.get("secret")).toBe("a");
  });
});

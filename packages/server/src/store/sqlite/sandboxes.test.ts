import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSandboxId, parseSandboxId, type SandboxId } from "@holdfast/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { SandboxRow, Store } from "../store.js";
import { openSqliteStore } from "./open-sqlite-store.js";
import { newEvent, STRANGE, sandboxEnding, sandboxRow, T0 } from "./testing/rows.js";

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

describe("sandboxes", () => {
  test("come back as they were written", async () => {
    const id = createSandboxId();
    const odd = Object.fromEntries(STRANGE.map((text) => [text, text]));
    Object.defineProperty(odd, "__proto__", { value: "own", enumerable: true });
    const row = await insertSandbox({
      id,
      status: "ended",
      expiresAt: null,
      onTimeout: "stop",
      autoResume: true,
      limits: { ...sandboxRow().limits, wallMs: 2 ** 40 },
      env: odd,
      metadata: odd,
      network: { allowInternetAccess: false, allowPublicTraffic: false, settings: { denyOut: ["0.0.0.0/0"] } },
      memoryKept: false,
      boots: 3,
      endedAt: new Date(T0 + 1),
      ending: sandboxEnding(id),
    });
    const found = await store.sandboxes.find(id);
    expect(found).toEqual(row);
    expect(JSON.stringify(found?.metadata)).toBe(JSON.stringify(odd));
    const plain = await insertSandbox();
    expect(await store.sandboxes.find(plain.id)).toStrictEqual(plain);
    expect(await store.sandboxes.find(parseSandboxId("nobody"))).toBeUndefined();
  });

  test("with the same id are refused", async () => {
    const row = await insertSandbox();
    await expect(store.sandboxes.insert(row)).rejects.toMatchObject({ code: "sandbox_exists" });
  });

  test("change together with their event", async () => {
    const row = await insertSandbox();
    const change = { status: "paused", expiresAt: null, memoryKept: true, boots: 2 } as const;
    const before = Date.now();
    const event = await store.sandboxes.apply(row.id, change, newEvent("paused", "a\0b"));
    expect(event).toMatchObject({ ...newEvent("paused", "a\0b"), sandboxId: row.id, keyId: row.keyId });
    expect(event.at.getTime()).toBeGreaterThanOrEqual(before);
    expect(await store.sandboxes.find(row.id)).toEqual({ ...row, ...change });
    expect(await store.events.list({ sandboxId: row.id, limit: 10 })).toEqual([event]);
    expect(await store.events.lastSeq()).toBe(event.seq);
  });

  test("take an event without a change", async () => {
    const row = await insertSandbox();
    await store.sandboxes.apply(row.id, {}, newEvent("adopted"));
    expect(await store.sandboxes.find(row.id)).toEqual(row);
    expect(await store.events.list({ limit: 10 })).toHaveLength(1);
  });

  test("neither change nor get an event when a part of it fails", async () => {
    const row = await insertSandbox();
    const change = { status: "running", limits: { ...row.limits, pids: 1.5 } } as const;
    await expect(store.sandboxes.apply(row.id, change, newEvent("created"))).rejects.toThrow("pids");
    const circle: Record<string, unknown> = {};
    circle.self = circle;
    const event = { ...newEvent("created"), data: circle };
    await expect(store.sandboxes.apply(row.id, { status: "running" }, event)).rejects.toThrow("circular");
    expect(await store.sandboxes.find(row.id)).toEqual(row);
    expect(await store.events.list({ limit: 10 })).toEqual([]);
    await store.sandboxes.apply(row.id, { status: "running" }, newEvent("created"));
  });

  test("that are not there cannot be changed", async () => {
    const missing = parseSandboxId("missing");
    const refusal = { code: "sandbox_not_found" };
    await expect(store.sandboxes.apply(missing, { status: "ended" }, newEvent("ended"))).rejects.toMatchObject(refusal);
    await expect(store.sandboxes.apply(missing, {}, newEvent("ended"))).rejects.toMatchObject(refusal);
    expect(await store.events.lastSeq()).toBe(0);
  });

  test("refuse text that cannot be kept, where it is not JSON", async () => {
    for (const template of ["a\0b", "\ud800"])
      await expect(insertSandbox({ template })).rejects.toMatchObject({ code: "invalid_argument" });
    await expect(insertSandbox({ createdAt: new Date(Number.NaN) })).rejects.toThrow("invalid date");
    expect(await store.sandboxes.list({ limit: 10 })).toEqual([]);
  });

  test("are listed in pages, newest or oldest first, without loss when times are equal", async () => {
    const rows: SandboxRow[] = [];
    for (let index = 0; index < 23; index++)
      rows.push(await insertSandbox({ createdAt: new Date(T0 + Math.floor(index / 7)) }));
    const oldestFirst = [...rows].sort(
      (a, b) => a.createdAt.getTime() - b.createdAt.getTime() || (a.id < b.id ? -1 : 1),
    );
    for (const order of ["asc", "desc", undefined] as const) {
      const seen: SandboxRow[] = [];
      for (;;) {
        const page = await store.sandboxes.list({ order, limit: 4, after: seen.at(-1) });
        seen.push(...page);
        if (page.length < 4) break;
      }
      expect(seen).toEqual(order === "asc" ? oldestFirst : oldestFirst.toReversed());
    }
  });

  test("are listed by key, status, template and time", async () => {
    const a = await insertSandbox({ status: "running" });
    const b = await insertSandbox({ status: "paused", createdAt: new Date(T0 + 1) });
    const c = await insertSandbox({ status: "running", createdAt: new Date(T0 + 2), keyId: "k2", template: "py" });
    const list = async (query: Partial<Parameters<Store["sandboxes"]["list"]>[0]>) =>
      (await store.sandboxes.list({ limit: 10, order: "asc", ...query })).map(({ id }) => id);
    expect(await list({})).toEqual([a.id, b.id, c.id]);
    expect(await list({ keyId: a.keyId })).toEqual([a.id, b.id]);
    expect(await list({ statuses: ["running", "ended"] })).toEqual([a.id, c.id]);
    expect(await list({ statuses: [] })).toEqual([]);
    expect(await list({ keyId: "k2", statuses: ["running"], template: "py" })).toEqual([c.id]);
    expect(await list({ template: "base" })).toEqual([a.id, b.id]);
    expect(await list({ startedAfter: new Date(T0 + 1) })).toEqual([b.id, c.id]);
    expect(await list({ startedAfter: new Date(T0 + 1), after: b })).toEqual([c.id]);
    expect(await list({ limit: 0 })).toEqual([]);
  });

  test("are found by all of some metadata, whatever text it is", async () => {
    const both = await insertSandbox({ metadata: { app: "x", user: "a" }, createdAt: new Date(T0 + 1) });
    const one = await insertSandbox({ metadata: { app: "x" } });
    const list = async (metadata: Record<string, string>) =>
      (await store.sandboxes.list({ limit: 100, metadata })).map(({ id }) => id);
    expect(await list({ app: "x" })).toEqual([both.id, one.id]);
    expect(await list({ app: "x", user: "a" })).toEqual([both.id]);
    expect(await list({ app: "x", user: "b" })).toEqual([]);
    expect(await list({ x: "app" })).toEqual([]);
    expect(await list({})).toEqual([both.id, one.id]);
    const rows = new Map<string, SandboxId>();
    for (const text of STRANGE) rows.set(text, (await insertSandbox({ metadata: { [`k${text}`]: text } })).id);
    for (const [text, id] of rows) expect(await list({ [`k${text}`]: text })).toEqual([id]);
    await store.sandboxes.apply(both.id, { metadata: { user: "c" } }, newEvent("resized"));
    expect(await list({ app: "x" })).toEqual([one.id]);
    expect(await list({ user: "c" })).toEqual([both.id]);
  });

  test("are found by a great many pairs", async () => {
    const metadata = Object.fromEntries(Array.from({ length: 60 }, (_, index) => [`name${index}`, `${index}`]));
    const { id } = await insertSandbox({ metadata });
    for (let count = 1; count <= 60; count++) {
      const some = Object.fromEntries(Object.entries(metadata).slice(0, count));
      expect((await store.sandboxes.list({ metadata: some, limit: 2 })).map((row) => row.id)).toEqual([id]);
    }
  });

  test("are counted with the sum of their memory", async () => {
    await insertSandbox({ status: "running" });
    await insertSandbox({ status: "paused" });
    await insertSandbox({ status: "ended" });
    await insertSandbox({ status: "running", keyId: "k2" });
    expect(await store.sandboxes.count({})).toEqual({ count: 4, memoryBytes: 4 * 2 ** 29 });
    const alive = { statuses: ["running", "paused"] as const };
    expect(await store.sandboxes.count(alive)).toEqual({ count: 3, memoryBytes: 3 * 2 ** 29 });
    expect(await store.sandboxes.count({ ...alive, keyId: "k2" })).toEqual({ count: 1, memoryBytes: 2 ** 29 });
    expect(await store.sandboxes.count({ keyId: "k3" })).toEqual({ count: 0, memoryBytes: 0 });
  });

  test("that ended long ago are named, the oldest first", async () => {
    const ended = (millis: number) => insertSandbox({ status: "ended", endedAt: new Date(T0 + millis) });
    const [late, early, middle] = [await ended(30), await ended(10), await ended(20)];
    await insertSandbox({ status: "running" });
    expect(await store.sandboxes.endedBefore(new Date(T0 + 30), 10)).toEqual([early.id, middle.id]);
    expect(await store.sandboxes.endedBefore(new Date(T0 + 99), 2)).toEqual([early.id, middle.id]);
    expect(await store.sandboxes.endedBefore(new Date(T0 + 99), 9)).toContain(late.id);
  });

  test("change one after the other when many are asked to at once", async () => {
    const rows = await Promise.all(Array.from({ length: 20 }, () => insertSandbox()));
    const events = await Promise.all(
      Array.from({ length: 400 }, (_, index) => {
        const { id } = rows[index % rows.length] as SandboxRow;
        const change = { boots: index, timeoutMs: index };
        return store.sandboxes.apply(id, change, { kind: "resized", message: "", data: { index } });
      }),
    );
    expect(new Set(events.map(({ seq }) => seq)).size).toBe(400);
    for (const { id } of rows) {
      const [last] = await store.events.list({ sandboxId: id, newestFirst: true, limit: 1 });
      expect(await store.sandboxes.find(id)).toMatchObject({ boots: last?.data.index, timeoutMs: last?.data.index });
    }
  });
});

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { createSandboxId, HoldfastError, type SandboxId } from "@holdfast/protocol";
import Libsql from "libsql";
import { build } from "vite";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { SandboxRow, Store } from "../store.js";
import { Connection } from "./connection.js";
import { migrate } from "./migrate.js";
import { firstTables } from "./migrations/0001-first-tables.js";
import { openSqliteStore } from "./open-sqlite-store.js";

function sandboxRow(id: SandboxId): SandboxRow {
  return {
    id,
    keyId: "k1",
    template: "base",
    imageId: null,
    memory: { requestedBytes: null, effectiveBytes: 2 ** 29, floorBytes: null, reason: null },
    volumes: [],
    status: "running",
    createdAt: new Date(),
    expiresAt: null,
    timeoutMs: 0,
    onTimeout: "kill",
    autoResume: false,
    limits: { memoryBytes: 1, pids: 1, cpuMillis: 1, diskBytes: 1, outputBytes: 1, wallMs: undefined },
    env: {},
    metadata: {},
    network: { allowInternetAccess: null, allowPublicTraffic: true, settings: null },
    memoryKept: null,
    boots: 0,
    endedAt: null,
    ending: null,
  };
}

let directory: string;
let path: string;
const stores: Store[] = [];
const children: ChildProcess[] = [];

async function openStore(): Promise<Store> {
  const store = await openSqliteStore(path);
  stores.push(store);
  return store;
}

async function refusal(): Promise<HoldfastError> {
  const error: unknown = await openStore().catch((reason: unknown) => reason);
  if (!(error instanceof HoldfastError)) throw new Error("it was opened");
  return error;
}

/** Changes the file behind the store's back. */
function edit(...statements: string[]): void {
  const database = new Libsql(path);
  for (const statement of statements) database.exec(statement);
  database.close();
}

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "holdfast-open-"));
  path = join(directory, "holdfast.db");
});

afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  for (const store of stores.splice(0)) await store.close();
  await rm(directory, { recursive: true, force: true });
});

describe("a database file", () => {
  test("is made with its tables, for its owner alone", async () => {
    const store = await openStore();
    await store.settings.putIfAbsent("a", "b");
    for (const ending of ["", "-wal", "-shm"]) expect((await stat(path + ending)).mode & 0o777).toBe(0o600);
  });

  test("that others could read is closed to them", async () => {
    await (await openStore()).settings.putIfAbsent("a", "b");
    for (const ending of ["", "-wal", "-shm"]) await chmod(path + ending, 0o644);
    await openStore();
    for (const ending of ["", "-wal", "-shm"]) expect((await stat(path + ending)).mode & 0o777).toBe(0o600);
  });

  test("is opened again with all that was written", async () => {
    const first = await openStore();
    const row = sandboxRow(createSandboxId());
    await first.sandboxes.insert(row);
    const event = await first.sandboxes.apply(row.id, { boots: 2 }, { kind: "created", message: "m", data: {} });
    await first.close();
    const second = await openStore();
    expect(await second.sandboxes.find(row.id)).toEqual({ ...row, boots: 2 });
    expect(await second.events.list({ limit: 9 })).toEqual([event]);
  });

  test("that is closed answers with an error, and may be closed twice", async () => {
    const store = await openStore();
    await store.close();
    await store.close();
    await expect(store.keys.list()).rejects.toThrow("is closed");
  });

  test("of a newer version is refused and left as it is", async () => {
    await (await openStore()).close();
    edit("insert into kysely_migration (name, timestamp) values ('0999-from-the-future', '')");
    const error = await refusal();
    expect(error.code).toBe("host_unsupported");
    expect(error.message).toContain("newer version of Holdfast (it has 0999-from-the-future)");
  });

  test("of another program is refused and left as it is", async () => {
    edit("create table guests (name text)");
    const before = await readFile(path);
    expect((await refusal()).message).toBe(`${path} is a database of another program`);
    expect(await readFile(path)).toEqual(before);
    edit("drop table guests", "pragma application_id = 5");
    expect((await refusal()).message).toBe(`${path} is a database of another program`);
  });

  test("that is no database is refused", async () => {
    await writeFile(path, "this is a text about something else entirely, and long enough".repeat(50));
    expect((await refusal()).message).toBe(`${path} is not a database`);
  });

  test("that is damaged is refused with a remedy", async () => {
    const store = await openStore();
    for (let index = 0; index < 300; index++) await store.settings.putIfAbsent(`name${index}`, "x".repeat(500));
    await store.close();
    edit("pragma wal_checkpoint(truncate)");
    const bytes = await readFile(path);
    await writeFile(path, bytes.fill(0xa5, 4096));
    await Promise.all(["-wal", "-shm"].map((ending) => rm(path + ending, { force: true })));
    const error = await refusal();
    expect(error.message).toContain("is damaged");
    expect(error.hint).toContain("bring back a copy");
  });

  test("with a value that makes no sense says which", async () => {
    const store = await openStore();
    const row = sandboxRow(createSandboxId());
    await store.sandboxes.insert(row);
    edit(`update sandboxes set metadata = '{"a":1}'`);
    await expect(store.sandboxes.find(row.id)).rejects.toThrow(`metadata of sandbox ${row.id}`);
    edit(`update sandboxes set metadata = '{', status = 'asleep'`);
    await expect(store.sandboxes.list({ limit: 1 })).rejects.toThrow("status of sandbox");
  });

  test("cannot be a directory or lie in one that is not there", async () => {
    await mkdir(path, { mode: 0o755 });
    expect((await refusal()).message).toContain("it is not a file");
    expect((await stat(path)).mode & 0o777).toBe(0o755);
    path = join(directory, "missing", "holdfast.db");
    expect((await refusal()).hint).toContain("directory must exist");
  });

  test("is brought up to date by the migrations it lacks, each whole or not at all", async () => {
    const connection = new Connection(path);
    const tables = () => connection.rows("select name from sqlite_schema where name in ('one', 'two') order by name");
    const first = { "0001-first-tables": firstTables };
    const one = { up: async () => void connection.rows("create table one (a text) strict") };
    const two = {
      up: async () => {
        connection.rows("create table two (a text) strict");
        throw new Error("the second part fails");
      },
    };
    await migrate(connection, path, first);
    await expect(migrate(connection, path, { ...first, "0002": one, "0003": two })).rejects.toThrow("second part");
    expect(tables()).toEqual([]);
    await migrate(connection, path, { ...first, "0002": one });
    await migrate(connection, path, { ...first, "0002": one });
    expect(tables()).toEqual([{ name: "one" }]);
    connection.close();
  });
});

describe("beside other processes", () => {
  let bundleDirectory: string;
  let programs = 0;

  beforeAll(async () => {
    bundleDirectory = await mkdtemp(join(tmpdir(), "holdfast-bundle-"));
    const conditions = ["holdfast-source", "module", "node"];
    const libsql = createRequire(import.meta.url).resolve("libsql");
    await build({
      configFile: false,
      logLevel: "error",
      ssr: { noExternal: true, resolve: { conditions } },
      build: {
        ssr: join(import.meta.dirname, "open-sqlite-store.ts"),
        outDir: bundleDirectory,
        rollupOptions: { external: ["libsql"], output: { entryFileNames: "store.mjs", paths: { libsql } } },
      },
    });
  });

  afterAll(() => rm(bundleDirectory, { recursive: true, force: true }));

  /** A program with `store`, `id` and `log(number)`, which has told the number when it returns. */
  async function startProgram(id: SandboxId, body: string): Promise<ChildProcess> {
    const program = join(directory, `program-${programs++}.mjs`);
    await writeFile(
      program,
      `import { writeSync } from "node:fs";
      import { openSqliteStore } from ${JSON.stringify(join(bundleDirectory, "store.mjs"))};
      const store = await openSqliteStore(${JSON.stringify(path)});
      const id = ${JSON.stringify(id)};
      const log = (number) => writeSync(1, number + "\\n");
      ${body}`,
    );
    const child = spawn(process.execPath, [program], { stdio: ["ignore", "pipe", "inherit"] });
    children.push(child);
    return child;
  }

  test("many make the file at the same time", async () => {
    const started = await Promise.all(
      Array.from({ length: 4 }, (_, index) =>
        startProgram(createSandboxId(), `await store.settings.putIfAbsent("n${index}", "v"); await store.close();`),
      ),
    );
    const codes = await Promise.all(started.map(async (child) => ((await once(child, "exit")) as [number])[0]));
    expect(codes).toEqual([0, 0, 0, 0]);
    const store = await openStore();
    for (let index = 0; index < 4; index++) expect(await store.settings.get(`n${index}`)).toBe("v");
  });

  test("two write at the same time, and neither fails or loses anything", async () => {
    const store = await openStore();
    const row = sandboxRow(createSandboxId());
    await store.sandboxes.insert(row);
    const child = await startProgram(
      row.id,
      `for (let n = 0; n < 300; n++)
        await store.sandboxes.apply(id, { boots: n }, { kind: "resized", message: "child", data: { n } });`,
    );
    const exit = once(child, "exit");
    let mine = 0;
    while (child.exitCode === null && child.signalCode === null) {
      const data = { n: mine };
      await store.sandboxes.apply(row.id, { boots: mine++ }, { kind: "resized", message: "parent", data });
      await sleep(0);
    }
    await exit;
    expect(child.exitCode).toBe(0);
    const events = await store.events.list({ sandboxId: row.id, limit: 1e6 });
    for (const [who, count] of [
      ["child", 300],
      ["parent", mine],
    ] as const) {
      const numbers = events.filter(({ message }) => message === who).map(({ data }) => data.n);
      expect(numbers).toEqual(Array.from({ length: count }, (_, index) => index));
    }
    expect((await store.sandboxes.find(row.id))?.boots).toBe(events.at(-1)?.data.n);
  });

  test("a killed one leaves rows and events that agree, and all it had told of", async () => {
    const id = createSandboxId();
    const first = await openStore();
    await first.sandboxes.insert(sandboxRow(id));
    await first.close();
    for (let round = 0; round < 8; round++) {
      const child = await startProgram(
        id,
        `const event = (kind, n) => ({ kind, message: "m", data: { n }, keyId: "k1" });
        const ending = { cause: { kind: "exited", code: 0 }, incidents: [], exitCode: 0, usage: {}, message: "m" };
        const row = { sandboxId: id, pid: 1, argv: [], env: {}, cwd: null, user: null, tag: null, pty: false,
          startedAt: new Date(), endedAt: null, ending: null };
        for (let n = (await store.sandboxes.find(id)).boots + 1; ; n++) {
          await store.sandboxes.apply(id, { boots: n, timeoutMs: n, metadata: { n: String(n) } }, event("resized", n));
          await store.commands.insert({ ...row, id: n }, event("command_started", n));
          await store.commands.end(id, n, ending, new Date(), event("command_ended", n));
          log(n);
        }`,
      );
      const { stdout } = child;
      if (stdout === null) throw new Error("no output");
      const told = text(stdout);
      await once(stdout, "data");
      await sleep(Math.random() * 60);
      child.kill("SIGKILL");
      const lastTold = Number((await told).trimEnd().split("\n").at(-1));
      const store = await openStore();
      const row = await store.sandboxes.find(id);
      const events = await store.events.list({ sandboxId: id, limit: 1e6 });
      const numbersOf = (kind: string) => events.filter((event) => event.kind === kind).map(({ data }) => data.n);
      const boots = row?.boots ?? 0;
      expect(boots).toBeGreaterThanOrEqual(lastTold);
      expect(row).toMatchObject({ timeoutMs: boots, metadata: { n: String(boots) } });
      expect(
        (await store.sandboxes.list({ metadata: { n: String(boots) }, limit: 9 })).map((found) => found.id),
      ).toEqual([id]);
      expect(numbersOf("resized")).toEqual(Array.from({ length: boots }, (_, index) => index + 1));
      const commands = await store.commands.list(id);
      expect(commands.map((command) => command.id).reverse()).toEqual(numbersOf("command_started"));
      const ended = commands.filter((command) => command.endedAt !== null).map((command) => command.id);
      expect(ended.reverse()).toEqual(numbersOf("command_ended"));
      await store.close();
    }
  }, 30_000);
});

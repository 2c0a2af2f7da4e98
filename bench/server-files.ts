/** Large files over HTTP, both ways, beside the engine alone and beside HTTP alone. */
import { fork } from "node:child_process";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import type { Sandbox as EngineSandbox } from "@holdfast/engine";
import { Holdfast, type Sandbox as OwnSandbox } from "@holdfast/sdk";
import { Sandbox as E2bSandbox } from "e2b";
import { type Bench, compareInTurns, createRow, type Figure, type Row, type Subject, timed } from "./harness.js";
import { exitOf } from "./processes.js";
import { countBytes, exchange, sandboxHeaders, text } from "./raw-http.js";
import { connectionTo, rawCreate, rawKill } from "./server-clients.js";
import { type ServerProcess, sharedServer } from "./server-process.js";
import { cpuOfServer, withCpu } from "./server-subjects.js";

const MB = 1_000_000;
const CHUNK = Buffer.alloc(64 * 1024, "holdfast ");
const WRITTEN = "/tmp/written";
const KEPT = "/tmp/kept";
const GOALS = { engine: { kind: "value", atLeast: 300 } } as const;

function* chunks(bytes: number): Generator<Buffer> {
  for (let left = bytes; left > 0; left -= CHUNK.length) yield CHUNK.subarray(0, Math.min(left, CHUNK.length));
}

/** As a program has it that reads from a file or from the network. */
const nodeStream = (bytes: number): Readable => Readable.from(chunks(bytes), { objectMode: false });

function webStream(bytes: number): ReadableStream<Uint8Array> {
  const source = chunks(bytes);
  return new ReadableStream<Uint8Array>({
    pull(controller) {
      const { done, value } = source.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
  });
}

async function countWebBytes(stream: ReadableStream<Uint8Array>): Promise<number> {
  let bytes = 0;
  const reader = stream.getReader();
  for (let turn = await reader.read(); !turn.done; turn = await reader.read()) bytes += turn.value.length;
  return bytes;
}

async function countNodeBytes(stream: Readable): Promise<number> {
  let bytes = 0;
  for await (const chunk of stream) bytes += (chunk as Buffer).length;
  return bytes;
}

/** Everything that can move a file, and the one who clears up after each. */
interface Movers {
  readonly bytes: number;
  readonly e2b: E2bSandbox;
  readonly own: OwnSandbox;
  readonly engine: EngineSandbox;
  readonly rawUrl: (path: string) => string;
  readonly rawHeaders: Record<string, string>;
  readonly plainUrl: string;
}

async function startPlainServer(bench: Bench): Promise<string> {
  const child = fork(fileURLToPath(new URL("./plain-http-server.js", import.meta.url)), { detached: true });
  bench.onEnd(async () => {
    child.kill("SIGKILL");
    await exitOf(child);
  });
  const [{ port }] = (await once(child, "message")) as [AddressInfo];
  return `http://127.0.0.1:${port}/`;
}

function rateOf(movers: Movers, name: string, work: () => Promise<unknown>, after?: () => Promise<unknown>): Subject {
  return {
    name,
    async measure() {
      const spentMs = await timed(work);
      await after?.();
      return movers.bytes / MB / (spentMs / 1000);
    },
  };
}

function uploads(movers: Movers): { ours: Subject; others: Subject[] } {
  const { bytes, e2b, own, engine, rawUrl, rawHeaders, plainUrl } = movers;
  const headers = { ...rawHeaders, "content-type": "application/octet-stream" };
  // A new file each time: to replace one costs its removal as well.
  const clear = () => own.files.remove(WRITTEN);
  const post = async (url: string) => text(await exchange({ url, method: "POST", headers, body: nodeStream(bytes) }));
  return {
    ours: rateOf(movers, "e2b SDK", () => e2b.files.write(WRITTEN, webStream(bytes)), clear),
    others: [
      rateOf(
        movers,
        "engine",
        () => engine.files.write(WRITTEN, nodeStream(bytes)),
        () => engine.files.remove(WRITTEN),
      ),
      rateOf(movers, "raw HTTP", () => post(rawUrl(WRITTEN)), clear),
      rateOf(movers, "e2b SDK, as a form", () => e2b.files.write(WRITTEN, new Blob([...chunks(bytes)])), clear),
      rateOf(movers, "our SDK", () => own.files.write(WRITTEN, webStream(bytes)), clear),
      rateOf(movers, "Node's HTTP alone", () => post(plainUrl)),
    ],
  };
}

function downloads(movers: Movers): { ours: Subject; others: Subject[] } {
  const { bytes, e2b, own, engine, rawUrl, rawHeaders, plainUrl } = movers;
  const expectAll = async (count: Promise<number>) => {
    const seen = await count;
    if (seen !== bytes) throw new Error(`${seen} of ${bytes} bytes arrived`);
  };
  const headers = { ...rawHeaders, "x-bytes": String(bytes) };
  const get = async (url: string) => expectAll(countBytes(await exchange({ url, method: "GET", headers })));
  return {
    ours: rateOf(movers, "e2b SDK", async () =>
      expectAll(countWebBytes(await e2b.files.read(KEPT, { format: "stream" }))),
    ),
    others: [
      rateOf(movers, "engine", async () => expectAll(countNodeBytes((await engine.files.read(KEPT)).content))),
      rateOf(movers, "raw HTTP", () => get(rawUrl(KEPT))),
      rateOf(movers, "our SDK", async () => expectAll(countWebBytes(await own.files.read(KEPT, { as: "stream" })))),
      rateOf(movers, "Node's HTTP alone", () => get(plainUrl)),
    ],
  };
}

async function compareMovers(
  bench: Bench,
  server: ServerProcess,
  what: string,
  movers: { readonly ours: Subject; readonly others: readonly Subject[] },
): Promise<Row[]> {
  const { quick, signal } = bench;
  const cpu: number[] = [];
  const rows = await compareInTurns(what, withCpu(movers.ours, cpu, cpuOfServer(server)), movers.others, {
    rounds: quick ? 1 : 3,
    turns: quick ? 2 : 5,
    roundMs: 20_000,
    signal,
    unit: "MB/s",
    goals: GOALS,
  });
  return [...rows, createRow("  CPU time of the server for it", "ms", [cpu.slice(1)])];
}

export const serverFiles: Figure = {
  name: "server-files",
  title: "A file of 100 MB over HTTP, as a stream",
  async run(bench): Promise<Row[]> {
    const server = await sharedServer(bench);
    const bytes = bench.quick ? 20 * MB : 100 * MB;
    const { id, token } = await rawCreate(server);
    const engine = await bench.engine.create({});
    try {
      const movers: Movers = {
        bytes,
        e2b: await E2bSandbox.connect(id, connectionTo(server)),
        own: await new Holdfast({ url: server.url, apiKey: server.apiKey }).sandboxes.connect(id),
        engine,
        rawUrl: (path) => `${server.url}/files?path=${encodeURIComponent(path)}`,
        rawHeaders: sandboxHeaders(id, token),
        plainUrl: await startPlainServer(bench),
      };
      await movers.own.files.write(KEPT, webStream(bytes));
      await engine.files.write(KEPT, nodeStream(bytes));
      const size = `${bytes / MB} MB`;
      return [
        ...(await server.profiled("upload", () =>
          compareMovers(bench, server, `${size} up, through the e2b SDK`, uploads(movers)),
        )),
        ...(await server.profiled("download", () =>
          compareMovers(bench, server, `${size} down, through the e2b SDK`, downloads(movers)),
        )),
        ...(await server.memoryRows()),
      ];
    } finally {
      await rawKill(server, id);
      await engine.kill("the benchmark");
    }
  },
};

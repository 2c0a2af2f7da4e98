/** From the wish for a sandbox to the first byte that a command in it says, when one like it is ready. */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BubblewrapEngine, type Sandbox } from "@holdfast/engine";
import type { HostInfo } from "@holdfast/protocol";
import { type Bench, compareInTurns, createRow, type Figure, type Row, type Subject, type Turns } from "./harness.js";
import { bubblewrap } from "./peers.js";
import { exchange, text } from "./raw-http.js";
import { expectSuccess, limitsWith } from "./sandboxes.js";
import { type ServerProcess, startServerProcess } from "./server-process.js";

const MIB = 1024 * 1024;
const GOAL = { bwrap: { kind: "ratio", atMost: 0.5 } } as const;
const ARGV = ["/bin/echo", "hello"];
const LIMITS = limitsWith({ memoryBytes: 256 * MIB, pids: 128, diskBytes: 256 * MIB });
const SPEC = { limits: LIMITS, whenOwnerDies: "keep" } as const;
/** What was made in the background leaves the host busy for a moment. */
const QUIET_MS = 20;

interface Parts {
  readonly claim: number[];
  readonly handOver: number[];
  readonly command: number[];
}

async function firstOutput(sandbox: Sandbox): Promise<number> {
  const command = await sandbox.start({ argv: ARGV });
  let first: number | undefined;
  for await (const event of command.output()) if (event.kind === "data") first ??= performance.now();
  await expectSuccess(command.ended);
  return first ?? Number.NaN;
}

/** `isReady`: it has to come from the pool. */
function onEngine(engine: BubblewrapEngine, options: { readonly isReady: boolean; readonly parts?: Parts }): Subject {
  return {
    name: options.isReady ? "ready" : "cold",
    async measure() {
      await engine.warm.idle();
      await sleep(QUIET_MS);
      const start = performance.now();
      const warm = options.isReady ? await engine.warm.claim(SPEC) : undefined;
      const claimed = performance.now();
      const sandbox = await engine.create(SPEC, { warm });
      const made = performance.now();
      const first = await firstOutput(sandbox);
      await sandbox.kill("the benchmark");
      if (options.isReady && warm === undefined) throw new Error("no sandbox was ready");
      options.parts?.claim.push(claimed - start);
      options.parts?.handOver.push(made - claimed);
      options.parts?.command.push(first - made);
      return first - start;
    },
  };
}

async function openWarmEngine(bench: Bench): Promise<BubblewrapEngine> {
  const engine = await BubblewrapEngine.open({
    stateDirectory: join(bench.scratchDirectory, "warm"),
    warm: { perShape: 2, total: 2, maxAgeMs: 600_000, keepFreeShare: 0 },
  });
  bench.onEnd(() => engine.close({ sandboxes: "kill" }));
  for (let asked = 0; asked < 2; asked++) await engine.warm.claim(SPEC);
  return engine;
}

const apiHeaders = ({ apiKey }: ServerProcess) => ({ "x-api-key": apiKey, "content-type": "application/json" });

async function post(server: ServerProcess, path: string, body: unknown) {
  const request = { url: `${server.url}${path}`, method: "POST", headers: apiHeaders(server) };
  return exchange({ ...request, body: JSON.stringify(body) });
}

async function readyOf(server: ServerProcess): Promise<number> {
  const request = { url: `${server.url}/v1/host`, method: "GET", headers: apiHeaders(server) };
  return (JSON.parse(await text(await exchange(request))) as HostInfo).warm.ready;
}

/** Two requests: a create, and a command whose output is read as it comes. */
function onServer(server: ServerProcess, options: { readonly isReady: boolean }): Subject {
  return {
    name: options.isReady ? "ready, over HTTP" : "cold, over HTTP",
    async measure() {
      while (options.isReady && (await readyOf(server)) < 2) await sleep(QUIET_MS);
      await sleep(QUIET_MS);
      const start = performance.now();
      const made = await text(await post(server, "/v1/sandboxes", { limits: LIMITS, timeoutMs: 3_600_000 }));
      const { id } = JSON.parse(made) as { id: string };
      let said = "";
      let first: number | undefined;
      for await (const chunk of await post(server, `/v1/sandboxes/${id}/run`, { argv: ARGV })) {
        said += String(chunk);
        if (said.includes('"stdout"')) first ??= performance.now();
      }
      const request = { url: `${server.url}/v1/sandboxes/${id}`, method: "DELETE", headers: apiHeaders(server) };
      await text(await exchange(request));
      if (first === undefined) throw new Error(`the measured command was answered with ${said}`);
      return first - start;
    },
  };
}

export const warmCreate: Figure = {
  name: "warm-create",
  title: "A sandbox that is ready: from the wish for it to a command's first output",
  async run(bench): Promise<Row[]> {
    const { signal, quick } = bench;
    const turns: Turns = { rounds: quick ? 1 : 3, turns: quick ? 5 : 40, roundMs: quick ? 3000 : 12_000, signal };
    const engine = await openWarmEngine(bench);
    const parts: Parts = { claim: [], handOver: [], command: [] };
    const ready = await compareInTurns(
      "ready, through the engine",
      onEngine(engine, { isReady: true, parts }),
      [bubblewrap, onEngine(engine, { isReady: false })],
      { ...turns, goals: GOAL },
    );
    const partRows = Object.entries(parts).map(([name, values]: [string, number[]]) =>
      // The first of each is the one that takeTurns does not count either.
      createRow(`  of it: ${name}`, "ms", [values.slice(1)]),
    );
    await engine.warm.idle();
    const { ready: count, used } = engine.warm.stats();
    const warm = await startServerProcess(bench, "warm-server", ["--warm-keep-free-percent", "0"]);
    const cold = await startServerProcess(bench, "cold-server");
    for (const server of [warm, cold]) {
      for (let made = 0; made < (quick ? 2 : 30); made++) await onServer(server, { isReady: false }).measure();
    }
    const overHttp = await compareInTurns(
      "ready, through the server",
      onServer(warm, { isReady: true }),
      [bubblewrap, onServer(cold, { isReady: false })],
      { ...turns, goals: GOAL },
    );
    return [
      ...ready,
      ...partRows,
      ...overHttp,
      createRow(`memory that ${count} ready ones hold`, "bytes", [[used.memoryBytes]], {
        note: `${used.pids} processes`,
      }),
    ];
  },
};

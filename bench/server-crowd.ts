/** The same figures while many other sandboxes are alive on the server. */
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Bench,
  createRow,
  type Figure,
  type PeerResult,
  type Row,
  type Subject,
  type Turns,
  takeTurns,
} from "./harness.js";
import { type Client, type ClientSandbox, e2bClient, engineClient, rawClient } from "./server-clients.js";
import { type ServerProcess, sharedServer, startServerProcess } from "./server-process.js";
import { commandSubject, createSubject } from "./server-subjects.js";

const AT_ONCE = 10;
/** Longer than one round of the sampler. */
const IDLE_MS = 10_000;
const HARDLY = { kind: "ratio", atMost: 1.15 } as const;
const KINDS = ["create", "command"] as const;
const ADDS = {
  create: { kind: "difference", atMost: 5 },
  command: { kind: "difference", atMost: 2 },
} as const;

type Values = Record<(typeof KINDS)[number], Map<string, number[][]>>;

async function takeBoth(clients: readonly Client[], turns: Turns): Promise<Values> {
  const sandboxes: ClientSandbox[] = [];
  try {
    for (const client of clients) sandboxes.push(await client.create());
    const commands = clients.map(({ name }, index): Subject => commandSubject(name, sandboxes[index] as ClientSandbox));
    return {
      create: await takeTurns(clients.map(createSubject), turns),
      command: await takeTurns(commands, { ...turns, turns: turns.turns * 2 }),
    };
  } finally {
    await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
  }
}

async function makeCrowd(bench: Bench, server: ServerProcess, count: number): Promise<ClientSandbox[]> {
  const client = rawClient(server);
  const crowd: ClientSandbox[] = [];
  let left = count;
  const worker = async () => {
    while (left > 0) {
      bench.signal.throwIfAborted();
      left -= 1;
      const sandbox = await client.create();
      crowd.push(sandbox);
      // One in which nothing ever ran would cost the server less than it should.
      await sandbox.run();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return crowd;
}

async function scatter(crowd: readonly ClientSandbox[]): Promise<void> {
  const left = [...crowd];
  const worker = async () => {
    for (let one = left.pop(); one !== undefined; one = left.pop()) await one.kill();
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

/** CPU time of the server in which nobody asks it anything, for each second. */
async function idleCpu(server: ServerProcess, quick: boolean): Promise<number> {
  const waitMs = quick ? IDLE_MS / 2 : IDLE_MS;
  const before = (await server.usage()).cpuMs;
  await sleep(waitMs);
  return (((await server.usage()).cpuMs - before) / waitMs) * 1000;
}

export const serverCrowd: Figure = {
  name: "server-crowd",
  title: "The same, through the e2b SDK, while many idle sandboxes are alive on the server",
  async run(bench): Promise<Row[]> {
    const { quick, signal } = bench;
    const count = quick ? 50 : 500;
    const server = await sharedServer(bench);
    const other = await startServerProcess(bench, "other-server");
    const turns: Turns = { rounds: quick ? 1 : 3, turns: quick ? 5 : 40, roundMs: quick ? 3000 : 8000, signal };
    const engine = engineClient(bench.engine);
    const ours = e2bClient(server);
    const empty = e2bClient(other, "server without them");
    const before = await takeBoth([ours, engine, empty], turns);
    const idleBefore = await idleCpu(server, quick);
    const usageBefore = await server.usage({ collect: true });
    const crowd = await makeCrowd(bench, server, count);
    try {
      const idleWith = await idleCpu(server, quick);
      const usageWith = await server.usage({ collect: true });
      const during = await server.profiled("crowd", () => takeBoth([ours, engine, empty], turns));
      const rows = KINDS.flatMap((kind) => {
        const of = (values: Values, client: Client): number[][] => values[kind].get(client.name) ?? [];
        const compare = (peer: PeerResult, goal?: typeof HARDLY | (typeof ADDS)[typeof kind]): Row =>
          createRow(`a ${kind} with ${count} others`, "ms", of(during, ours), {
            peer,
            ...(goal === undefined ? {} : { goal }),
          });
        return [
          compare({ name: "engine, with them", rounds: of(during, engine) }, ADDS[kind]),
          compare({ name: "before them", rounds: of(before, ours) }, HARDLY),
          compare({ name: empty.name, rounds: of(during, empty) }),
          createRow(`  the engine's own ${kind} with them`, "ms", of(during, engine), {
            peer: { name: "before them", rounds: of(before, engine) },
          }),
        ];
      });
      const each = (key: "rssBytes" | "heapBytes") => (usageWith[key] - usageBefore[key]) / count;
      return [
        ...rows,
        createRow("CPU time of the idle server, each second", "ms", [[idleWith]], {
          peer: { name: "before them", rounds: [[idleBefore]] },
        }),
        createRow("the server grew, for each of them", "bytes", [[each("rssBytes")]]),
        createRow("  of it: heap in use", "bytes", [[each("heapBytes")]]),
        ...(await server.memoryRows()),
      ];
    } finally {
      await scatter(crowd);
    }
  },
};

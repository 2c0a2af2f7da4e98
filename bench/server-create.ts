/** Sandboxes made over HTTP, beside the engine alone. */
import { type Bench, compareInTurns, createRow, type Figure, type Row, type Subject, type Turns } from "./harness.js";
import { type Client, e2bClient, engineClient, ownClient, rawClient } from "./server-clients.js";
import { type ServerProcess, sharedServer } from "./server-process.js";
import {
  cpuOfServer,
  cpuOfThisProcess,
  createSubject,
  firstOutputSubject,
  warmUp,
  withCpu,
} from "./server-subjects.js";

const CREATE_GOAL = { engine: { kind: "difference", atMost: 5 } } as const;
/** A create and a command. */
const FIRST_OUTPUT_GOAL = { engine: { kind: "difference", atMost: 7 } } as const;

async function compareClients(
  bench: Bench,
  server: ServerProcess,
  what: string,
  options: { readonly subject: (client: Client) => Subject; readonly turns: Parameters<typeof compareInTurns>[3] },
): Promise<Row[]> {
  const ours: number[] = [];
  const theirs: number[] = [];
  const { subject } = options;
  const rows = await compareInTurns(
    `${what}, through the e2b SDK`,
    withCpu(subject(e2bClient(server)), ours, cpuOfServer(server)),
    [
      withCpu(subject(engineClient(bench.engine)), theirs, cpuOfThisProcess),
      subject(rawClient(server)),
      subject(ownClient(server)),
    ],
    options.turns,
  );
  return [
    ...rows,
    createRow("  CPU time of the server for it, with the kill", "ms", [ours.slice(1)], {
      peer: { name: "engine's, here", rounds: [theirs.slice(1)] },
    }),
  ];
}

export const serverCreate: Figure = {
  name: "server-create",
  title: "A sandbox over HTTP",
  async run(bench): Promise<Row[]> {
    const { signal, quick } = bench;
    const server = await sharedServer(bench);
    const turns: Turns = { rounds: quick ? 1 : 3, turns: quick ? 5 : 60, roundMs: quick ? 3000 : 12_000, signal };
    const clients = [rawClient(server), ownClient(server), engineClient(bench.engine)];
    for (const client of clients) await warmUp(() => firstOutputSubject(client).measure(), quick ? 4 : 100);
    return server.profiled("create", async () => [
      ...(await compareClients(bench, server, "create", {
        subject: createSubject,
        turns: { ...turns, goals: CREATE_GOAL },
      })),
      ...(await compareClients(bench, server, "create to first output", {
        subject: firstOutputSubject,
        turns: { ...turns, goals: FIRST_OUTPUT_GOAL },
      })),
      ...(await server.memoryRows()),
    ]);
  },
};

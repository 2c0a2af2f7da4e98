/** A command over HTTP in a sandbox that is there already, beside the engine alone. */
import { compareInTurns, createRow, type Figure, type Row, type Turns } from "./harness.js";
import { type ClientSandbox, e2bClient, engineClient, ownClient, rawClient } from "./server-clients.js";
import { sharedServer } from "./server-process.js";
import { commandSubject, cpuOfServer, cpuOfThisProcess, warmUp, withCpu } from "./server-subjects.js";

const GOALS = { engine: { kind: "difference", atMost: 2 } } as const;

export const serverCommand: Figure = {
  name: "server-command",
  title: "A command over HTTP in a live sandbox: bash -l -c 'echo hello', until its result is there",
  async run(bench): Promise<Row[]> {
    const { signal, quick } = bench;
    const server = await sharedServer(bench);
    const clients = [e2bClient(server), engineClient(bench.engine), rawClient(server), ownClient(server)];
    const sandboxes: ClientSandbox[] = [];
    try {
      for (const client of clients) sandboxes.push(await client.create());
      const [e2b, engine, raw, own] = clients.map((client, index) =>
        commandSubject(client.name, sandboxes[index] as ClientSandbox),
      );
      if (e2b === undefined || engine === undefined || raw === undefined || own === undefined) return [];
      for (const subject of [e2b, engine, raw, own]) await warmUp(() => subject.measure(), quick ? 10 : 500);
      const cpu = { ours: [] as number[], theirs: [] as number[] };
      const turns: Turns = { rounds: quick ? 1 : 3, turns: quick ? 20 : 200, roundMs: quick ? 2000 : 10_000, signal };
      return await server.profiled("command", async () => [
        ...(await compareInTurns(
          "one after the other, through the e2b SDK",
          withCpu(e2b, cpu.ours, cpuOfServer(server)),
          [withCpu(engine, cpu.theirs, cpuOfThisProcess), raw, own],
          { ...turns, goals: GOALS },
        )),
        createRow("  CPU time of the server for it", "ms", [cpu.ours.slice(1)], {
          peer: { name: "engine's, here", rounds: [cpu.theirs.slice(1)] },
        }),
        ...(await compareInTurns("each after 100 ms of quiet", e2b, [engine, raw, own], {
          ...turns,
          turns: quick ? 3 : 15,
          pauseMs: 100,
          goals: GOALS,
        })),
        ...(await server.memoryRows()),
      ]);
    } finally {
      await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
    }
  },
};

/** Much output of a command over HTTP, beside the engine alone. */
import { compareInTurns, createRow, type Figure, type Row, type Subject, timed } from "./harness.js";
import { type ClientSandbox, e2bClient, engineClient, ownClient, rawClient } from "./server-clients.js";
import { sharedServer } from "./server-process.js";
import { cpuOfServer, cpuOfThisProcess, withCpu } from "./server-subjects.js";

const MB = 1_000_000;

export const serverOutput: Figure = {
  name: "server-output",
  title: "A command's output over HTTP, as it comes",
  async run(bench): Promise<Row[]> {
    const { signal, quick } = bench;
    const server = await sharedServer(bench);
    const bytes = quick ? 5 * MB : 50 * MB;
    const clients = [e2bClient(server), engineClient(bench.engine), rawClient(server), ownClient(server)];
    const sandboxes: ClientSandbox[] = [];
    try {
      for (const client of clients) sandboxes.push(await client.create());
      const [e2b, engine, ...others] = clients.map(
        ({ name }, index): Subject => ({
          name,
          measure: async () => bytes / MB / ((await timed(async () => sandboxes[index]?.readOutput(bytes))) / 1000),
        }),
      );
      if (e2b === undefined || engine === undefined) return [];
      const cpu = { ours: [] as number[], theirs: [] as number[] };
      return await server.profiled("output", async () => [
        ...(await compareInTurns(
          `${bytes / MB} MB, through the e2b SDK`,
          withCpu(e2b, cpu.ours, cpuOfServer(server)),
          [withCpu(engine, cpu.theirs, cpuOfThisProcess), ...others],
          { rounds: quick ? 1 : 3, turns: quick ? 2 : 4, roundMs: 15_000, signal, unit: "MB/s" },
        )),
        createRow("  CPU time of the server for it", "ms", [cpu.ours.slice(1)], {
          peer: { name: "engine's, here", rounds: [cpu.theirs.slice(1)] },
        }),
        ...(await server.memoryRows()),
      ]);
    } finally {
      await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
    }
  },
};

/** A command in a sandbox that is there already. */

import { dockerExec } from "./docker.js";
import { compareInTurns, type Figure, type Row, type Turns, timed } from "./harness.js";
import { nsenterInto, ociExec, plainSpawn } from "./peers.js";
import { runTrue } from "./sandboxes.js";

const GOALS = { "plain spawn": { kind: "ratio", atMost: 1 }, nsenter: { kind: "ratio", atMost: 1 } } as const;

export const liveCommand: Figure = {
  name: "live-command",
  title: "A command in a live sandbox: start /bin/true, until its cause is known",
  async run(bench): Promise<Row[]> {
    const { signal, quick } = bench;
    const sandbox = await bench.engine.create({});
    try {
      const nsenter = nsenterInto(sandbox.id);
      const ours = { name: "ours", measure: () => timed(() => runTrue(sandbox)) };
      const others = [await ociExec(bench, "runc"), await ociExec(bench, "runsc"), await dockerExec(bench)];
      const turns: Turns = { rounds: quick ? 1 : 3, turns: quick ? 20 : 300, roundMs: quick ? 1000 : 2500, signal };
      const hot = await compareInTurns("one after the other", ours, [plainSpawn, nsenter, ...others], {
        ...turns,
        goals: GOALS,
      });
      // cgroup v1 lets a process in at once only if somebody else just came in; see ARCHITECTURE.md.
      const cold = await compareInTurns("each after 100 ms of quiet", ours, [plainSpawn, nsenter], {
        ...turns,
        turns: quick ? 3 : 10,
        pauseMs: 100,
        goals: GOALS,
      });
      return [...hot, ...cold];
    } finally {
      await sandbox.kill("the benchmark");
    }
  },
};

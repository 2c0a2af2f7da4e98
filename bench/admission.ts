/** Whether there is room for one more, when there are a thousand already. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { ourIdentity } from "@holdfast/engine";
import { detectCgroups, Governor, ReservationFiles, readHostBudget } from "@holdfast/engine/governor";
import { compareInTurns, type Figure, type Row, timed } from "./harness.js";

const SANDBOXES = 1000;
const AMOUNTS = { memoryBytes: 1024 * 1024, pids: 1, diskBytes: 1024 * 1024 };
const GOAL_MS = 1;

export const admission: Figure = {
  name: "admission",
  title: `Whether there is room for one more sandbox, beside ${SANDBOXES}`,
  async run(bench): Promise<Row[]> {
    const cgroups = detectCgroups();
    const pool = { capacity: () => ({ totalBytes: 2 ** 40, usedBytes: 0 }) };
    const governorOf = (name: string): Governor => {
      const directory = join(bench.scratchDirectory, name);
      mkdirSync(directory);
      return new Governor({
        files: new ReservationFiles(directory, ourIdentity()),
        readBudget: () => readHostBudget({ cgroups, pool }, {}, 0),
      });
    };
    const request = (id: string) =>
      ({ id, kind: "sandbox", lane: "key", amounts: AMOUNTS, record: "/nowhere" }) as const;
    const full = governorOf("full");
    const empty = governorOf("empty");
    for (let i = 0; i < SANDBOXES; i++) await full.reserve(request(`s${i}`));
    const subject = (name: string, governor: Governor) => ({
      name,
      async measure() {
        const spent = await timed(() => governor.reserve(request("one")));
        governor.release("one");
        return spent;
      },
    });
    return compareInTurns(`beside ${SANDBOXES}`, subject("ours", full), [subject("beside none", empty)], {
      rounds: bench.quick ? 1 : 3,
      turns: 300,
      roundMs: 3000,
      signal: bench.signal,
      goals: { "beside none": { kind: "value", atMost: GOAL_MS } },
    });
  },
};

/** A thousand runs leave nothing, also where our process is PID 1 and nobody else reaps. */
import { mkdtempSync, rmSync } from "node:fs";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { buildEngine, runScript } from "../helpers/built-engine.js";
import { assertNoLeaks, type Inventory, OUR_DIRECTORIES, takeInventory } from "../helpers/leaks.js";
import { patienceMs, scaled } from "../helpers/scale.js";
import { MIB } from "../helpers/use-engine.js";

interface Counts {
  readonly live: number;
  readonly zombies: number;
  readonly descriptors: number;
  readonly heapBytes: number;
}

interface Report {
  readonly what: string;
  readonly pid: number;
  readonly count: number;
  readonly seconds: number;
  readonly counts: Counts;
}

describe("our process as PID 1 without an init", () => {
  let before: Inventory;
  let stateDirectory: string;
  beforeAll(buildEngine, patienceMs(60_000));
  beforeEach(() => {
    before = takeInventory();
    stateDirectory = mkdtempSync(OUR_DIRECTORIES);
  });
  afterEach(async () => {
    rmSync(stateDirectory, { recursive: true, force: true });
    await assertNoLeaks(before);
  });

  it(
    "has no more processes and no zombie after 1,000 runs in a row and 200 runs, 20 at a time",
    async () => {
      const [sequential, concurrent] = [scaled(1000), scaled(200, 40)];
      const script = runScript(
        "soak.mjs",
        [stateDirectory, String(sequential), String(concurrent), "20"],
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"],
      );
      const baseline = await script.next<Report>();
      expect(baseline.pid).toBe(1);
      for (const [what, count] of [
        ["sequential", sequential],
        ["concurrent", concurrent],
      ] as const) {
        const report = await script.next<Report>();
        console.log(
          `${count} ${what} runs took ${report.seconds.toFixed(1)} s: ${JSON.stringify(report.counts)}, before ${JSON.stringify(baseline.counts)}`,
        );
        expect(report).toMatchObject({ what, count });
        expect(report.counts.zombies).toBe(baseline.counts.zombies);
        expect(report.counts.live).toBe(baseline.counts.live);
        expect(report.counts.descriptors).toBeLessThanOrEqual(baseline.counts.descriptors + 2);
        expect(report.counts.heapBytes - baseline.counts.heapBytes).toBeLessThan(8 * MIB);
      }
      const closed = await script.next<Report>();
      expect(closed.counts.live).toBeLessThanOrEqual(baseline.counts.live);
      expect(await script.exited).toEqual({ code: 0, signal: null });
    },
    patienceMs(180_000),
  );
});

import { describe, expect, test } from "vitest";
import { REFUSAL_CODES, REFUSAL_SCOPES, REFUSED_WORK, type Refusal } from "../pressure/refusals.js";
import { type PressureHappening, Tally } from "../pressure/tally.js";
import { countPressure } from "./count-pressure.js";
import { Metrics } from "./metrics.js";

/** The lines that are other than at the start. */
async function changedBy(...happenings: readonly PressureHappening[]): Promise<string[]> {
  const metrics = new Metrics();
  const before = (await metrics.registry.metrics()).split("\n");
  const count = countPressure(metrics);
  for (const happening of happenings) count(happening);
  return (await metrics.registry.metrics()).split("\n").filter((line) => !before.includes(line));
}

describe("what happens under pressure", () => {
  test.each<[string, PressureHappening]>([
    ["holdfast_pressure_frozen_total 1", { kind: "frozen", count: 1 }],
    ["holdfast_pressure_thawed_total 3", { kind: "thawed", count: 3 }],
    ["holdfast_zombies_reaped_total 4", { kind: "zombiesReaped", count: 4 }],
    ["holdfast_orphans_reaped_total 5", { kind: "orphansEnded", count: 5 }],
    ["holdfast_orphans_reaped_total 6", { kind: "unownedEnded", count: 6 }],
    ['holdfast_clean_up_failures_total{what="sandbox"} 7', { kind: "cleanUpFailures", count: 7 }],
    [
      "holdfast_pressure_stage 4",
      { kind: "crossing", scope: "host", what: "memory", from: "warn", to: "freeze", direction: "up" },
    ],
  ])("moves %s", async (line, happening) => {
    expect(await changedBy(happening)).toEqual([line]);
  });

  test("in a sandbox, or to processes, is not the stage of the host's memory", async () => {
    const crossing = { kind: "crossing", from: "calm", to: "warn", direction: "up" } as const;
    const others = [
      { ...crossing, scope: "sandbox", what: "memory" },
      { ...crossing, scope: "host", what: "processes" },
    ] as const;
    expect(await changedBy(...others)).toEqual([]);
  });
});

describe("what pressure refuses", () => {
  const refusals: Refusal[] = REFUSED_WORK.flatMap((work) =>
    REFUSAL_CODES.flatMap((code) => REFUSAL_SCOPES.map((scope) => ({ work, code, scope }))),
  );

  test.each(refusals)("is counted apart: $work, $code of the $scope", async (refusal) => {
    const { work, code, scope } = refusal;
    const counted = await changedBy({ kind: "refused", ...refusal }, { kind: "refused", ...refusal });
    const isStart = work === "create" || work === "resume";
    expect(counted.sort()).toEqual([
      ...(isStart ? [`holdfast_create_failures_total{code="${code}"} 2`] : []),
      `holdfast_pressure_refused_total{work="${work}",code="${code}",scope="${scope}"} 2`,
    ]);
  });

  test("is told once, and in the totals", () => {
    const told: PressureHappening[] = [];
    const tally = new Tally((happening) => told.push(happening));
    tally.refused({ code: "pid_pressure", scope: "host", work: "build" });
    expect(told).toEqual([{ kind: "refused", code: "pid_pressure", scope: "host", work: "build" }]);
    expect(tally.totals.refused).toBe(1);
  });
});

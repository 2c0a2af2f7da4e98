import {
  COMMAND_CAUSES,
  type CommandCause,
  HoldfastError,
  SANDBOX_CAUSES,
  type SandboxCause,
} from "@holdfast/protocol";
import { expect, test } from "vitest";
import { Metrics } from "./metrics.js";

const usage = { memoryPeakBytes: null, cpuMs: 0, wallMs: 1500, pidsPeak: null, stdoutBytes: 0, stderrBytes: 0 };

test("everything is there from the start, as 0", async () => {
  const text = await new Metrics().registry.metrics();
  const values = [...text.matchAll(/^holdfast_\S+ (\S+)$/gm)].map(([, value]) => value);
  expect(values.length).toBeGreaterThan(150);
  expect(new Set(values)).toEqual(new Set(["0"]));
  for (const cause of SANDBOX_CAUSES) expect(text).toContain(`holdfast_sandbox_endings_total{cause="${cause}"} 0`);
  for (const cause of COMMAND_CAUSES) expect(text).toContain(`holdfast_command_endings_total{cause="${cause}"} 0`);
});

test("two of them in one process know nothing of each other", async () => {
  const [one, other] = [new Metrics(), new Metrics()];
  one.held();
  expect(await one.registry.metrics()).toContain("holdfast_holds_total 1\n");
  expect(await other.registry.metrics()).toContain("holdfast_holds_total 0\n");
});

test("a cause that is none is counted as such, and adds no label", async () => {
  const metrics = new Metrics();
  metrics.sandboxEnded({ cause: { kind: "aliens" } as unknown as SandboxCause });
  metrics.commandEnded({ cause: { kind: "toString" } as unknown as CommandCause, incidents: [], usage });
  const text = await metrics.registry.metrics();
  expect(text).toContain("holdfast_unknown_causes_total 2\n");
  expect(text).not.toMatch(/aliens|toString/);
});

test("the wait for room is no part of the time that a creation took", async () => {
  const metrics = new Metrics();
  const made = await metrics.creating("cold", async (onWaited) => {
    onWaited({ kind: "sandbox", waitedMs: 3_600_000, outcome: "admitted" });
    return "made";
  });
  expect(made).toBe("made");
  const text = await metrics.registry.metrics();
  expect(text).toContain('holdfast_create_seconds_bucket{le="0.01",how="cold"} 1\n');
});

test("a creation that fails is counted by its code, and not as one that took time", async () => {
  const metrics = new Metrics();
  const failing = metrics.creating("fork", async () => Promise.reject(new HoldfastError("host_capacity", "full")));
  await expect(failing).rejects.toThrow("full");
  const text = await metrics.registry.metrics();
  expect(text).toContain('holdfast_create_failures_total{code="host_capacity"} 1\n');
  expect(text).toContain('holdfast_create_seconds_count{how="fork"} 0\n');
});

const POOL = {
  ready: 0,
  hits: 0,
  misses: 0,
  waste: { age: 0, unwanted: 0, evicted: 0, unhealthy: 0, drained: 0, closed: 0 },
};

test("each way to tell it something moves one number", async () => {
  const moves: [string, (metrics: Metrics) => void][] = [
    ["holdfast_holds_total 1", (metrics) => metrics.held()],
    ["holdfast_grows_total 1", (metrics) => metrics.grew()],
    ["holdfast_shrinks_total 1", (metrics) => metrics.shrank()],
    ["holdfast_kills_averted_total 1", (metrics) => metrics.averted()],
    ["holdfast_pool_hits_total 3", (metrics) => [1, 3].map((hits) => metrics.pool({ ...POOL, hits }))],
    ["holdfast_pool_misses_total 1", (metrics) => metrics.pool({ ...POOL, misses: 1 })],
    ["holdfast_pool_wasted_total 2", (metrics) => metrics.pool({ ...POOL, waste: { ...POOL.waste, age: 2 } })],
    ["holdfast_pool_size 4", (metrics) => metrics.pool({ ...POOL, ready: 4 })],
    ["holdfast_orphans_reaped_total 3", (metrics) => metrics.orphansReaped(3)],
    ["holdfast_zombies_reaped_total 5", (metrics) => metrics.zombiesReaped(5)],
    ["holdfast_pressure_stage 2", (metrics) => metrics.pressureStage(2)],
    ['holdfast_clean_up_failures_total{what="layer"} 1', (metrics) => metrics.cleanUpFailed("layer")],
    ['holdfast_clean_up_failures_total{what="sandbox"} 9', (metrics) => metrics.cleanUpFailed("sandbox", 9)],
  ];
  const zero = await new Metrics().registry.metrics();
  for (const [line, move] of moves) {
    const metrics = new Metrics();
    move(metrics);
    const changed = (await metrics.registry.metrics()).split("\n").filter((each) => !zero.split("\n").includes(each));
    expect(changed).toEqual([line]);
  }
});

import type { Engine } from "@holdfast/engine";
import { createSandboxId, HoldfastError } from "@holdfast/protocol";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Metrics } from "../metrics/metrics.js";
import { discardLater } from "./strays.js";

const log = pino({ level: "silent" });
const metrics = new Metrics();

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("what is stopped and nobody's is discarded a while later, if it is still there", async () => {
  const [taken, broken, left] = [createSandboxId(), createSandboxId(), createSandboxId()];
  const stopped = new Set([taken, broken, left]);
  const discarded: string[] = [];
  const engine = {
    stopped: () => [...stopped],
    discard: async (id: string) => {
      if (id === broken) throw new HoldfastError("sandbox_busy", "somebody has it");
      discarded.push(id);
    },
  } as unknown as Engine;
  discardLater({ engine, log, metrics }, [taken, broken, left]);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(discarded).toEqual([]);
  stopped.delete(taken);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(discarded).toEqual([left]);
  const text = await metrics.registry.metrics();
  expect(text).toContain("holdfast_orphans_reaped_total 1\n");
  expect(text).toContain('holdfast_clean_up_failures_total{what="sandbox"} 1\n');
});

test("they are left to the next server if this one goes before", async () => {
  const id = createSandboxId();
  const discard = vi.fn();
  const leave = discardLater({ engine: { stopped: () => [id], discard } as unknown as Engine, log, metrics }, [id]);
  leave();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(discard).not.toHaveBeenCalled();
});

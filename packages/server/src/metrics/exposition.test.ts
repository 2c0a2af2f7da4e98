import { pino } from "pino";
import { Gauge, Registry } from "prom-client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Exposition, type Reading } from "./exposition.js";

const log = pino({ level: "silent" });
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterEach(() => void vi.useRealTimers());

function partOf(registry: Registry, part: Reading["part"], read: (gauge: Gauge<"a">) => Promise<void>): Reading {
  const gauge = new Gauge({ name: `${part}_gauge`, help: "x", labelNames: ["a"] as const, registers: [registry] });
  return { part, gauges: [gauge], read: () => read(gauge) };
}

test("however many ask at once, it is read once, and again after a second", async () => {
  const registry = new Registry();
  let reads = 0;
  const reading = partOf(registry, "host", async (gauge) => gauge.set(++reads));
  const exposition = new Exposition({ registry, readings: [reading], log });
  const texts = await Promise.all(Array.from({ length: 100 }, () => exposition.text()));
  expect(new Set(texts).size).toBe(1);
  for (let i = 0; i < 10; i++) await exposition.text();
  expect(reads).toBe(1);
  await vi.advanceTimersByTimeAsync(1001);
  expect(await exposition.text()).toContain("host_gauge 2\n");
});

test("a part that fails is left out and counted; the others are there", async () => {
  const registry = new Registry();
  let isBroken = false;
  const readings = [
    partOf(registry, "host", async (gauge) => {
      if (isBroken) throw new Error("cannot read");
      gauge.set(7);
      gauge.set({ a: "b" }, 8);
    }),
    partOf(registry, "sandboxes", async (gauge) => gauge.set(3)),
  ];
  const exposition = new Exposition({ registry, readings, log });
  expect(await exposition.text()).toContain("host_gauge 7\n");
  isBroken = true;
  await vi.advanceTimersByTimeAsync(1001);
  const text = await exposition.text();
  expect(text).not.toMatch(/^host_gauge/m);
  expect(text).toContain("sandboxes_gauge 3\n");
  expect(text).toContain('holdfast_scrape_failures_total{part="host"} 1\n');
  expect(text).toContain('holdfast_scrape_failures_total{part="sandboxes"} 0\n');
  isBroken = false;
  await vi.advanceTimersByTimeAsync(1001);
  expect(await exposition.text()).toContain("host_gauge 7\n");
});

test("a part that does not come back delays nobody for long, and is not asked again meanwhile", async () => {
  const registry = new Registry();
  let asked = 0;
  let comeBack: () => void = () => {};
  const reading = partOf(registry, "host", () => {
    asked += 1;
    return new Promise<void>((resolve) => {
      comeBack = resolve;
    });
  });
  const exposition = new Exposition({ registry, readings: [reading], log });
  for (let i = 1; i <= 3; i++) {
    const text = exposition.text();
    await vi.advanceTimersByTimeAsync(3001);
    expect(await text).toContain(`holdfast_scrape_failures_total{part="host"} ${i}\n`);
  }
  expect(asked).toBe(1);
  comeBack();
  await vi.advanceTimersByTimeAsync(1001);
  const text = exposition.text();
  await vi.advanceTimersByTimeAsync(1);
  expect(asked).toBe(2);
  comeBack();
  expect(await text).toContain('{part="host"} 3\n');
});

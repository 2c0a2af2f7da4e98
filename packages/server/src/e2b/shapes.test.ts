import { DEFAULT_SANDBOX_LIMITS, parseSandboxId } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import type { SandboxRow } from "../store/store.js";
import { listedSandboxShape, metricShape, sandboxDetailShape, sandboxShape } from "./shapes.js";

const row: SandboxRow = {
  id: parseSandboxId("iabc"),
  keyId: "k1",
  template: "base",
  imageId: null,
  memory: { requestedBytes: null, effectiveBytes: 2 ** 29, floorBytes: null, reason: null },
  volumes: [],
  status: "running",
  createdAt: new Date("2026-10-01T00:00:00Z"),
  expiresAt: new Date("2026-10-01T00:05:00Z"),
  timeoutMs: 300_000,
  onTimeout: "stop",
  autoResume: false,
  limits: { ...DEFAULT_SANDBOX_LIMITS, cpuMillis: 1500 },
  env: { SECRET: "x" },
  metadata: { a: "b" },
  network: { allowInternetAccess: null, allowPublicTraffic: true, settings: null },
  memoryKept: null,
  boots: 1,
  endedAt: null,
  ending: null,
};

const access = { domain: null, envdToken: (id: string) => `envd-${id}`, trafficToken: (id: string) => `traffic-${id}` };

const origin = { templateID: "tabc", alias: "app" };

const identity = {
  ...origin,
  sandboxID: "iabc",
  clientID: "holdfast",
  envdVersion: "0.6.13",
};

describe("a sandbox as E2B shows it", () => {
  it("answers a create with its tokens", () => {
    expect(sandboxShape(row, origin, access)).toEqual({
      ...identity,
      envdAccessToken: "envd-iabc",
      trafficAccessToken: null,
      domain: null,
    });
  });

  it("has a traffic token if its traffic is not public", () => {
    const closed = { ...row, network: { ...row.network, allowPublicTraffic: false } };
    expect(sandboxShape(closed, origin, { ...access, domain: "box.test:3000" })).toMatchObject({
      trafficAccessToken: "traffic-iabc",
      domain: "box.test:3000",
    });
  });

  it("is listed in whole CPUs and MiB", () => {
    expect(listedSandboxShape(row, origin)).toEqual({
      ...identity,
      startedAt: "2026-10-01T00:00:00.000Z",
      endAt: "2026-10-01T00:05:00.000Z",
      state: "running",
      cpuCount: 2,
      memoryMB: 512,
      diskSizeMB: 1024,
      metadata: { a: "b" },
      volumeMounts: [],
    });
  });

  it("has a time at its end although it is paused", () => {
    expect(listedSandboxShape({ ...row, status: "paused", expiresAt: null }, origin)).toMatchObject({
      state: "paused",
      endAt: "2026-10-01T00:00:00.000Z",
    });
  });

  it("says in full what becomes of it, and nothing of its environment", () => {
    const detail = sandboxDetailShape(row, origin, access);
    expect(detail).toMatchObject({
      allowInternetAccess: null,
      network: { allowPublicTraffic: true },
      lifecycle: { autoResume: false, onTimeout: "pause" },
      envdAccessToken: "envd-iabc",
      domain: null,
    });
    expect(JSON.stringify(detail)).not.toContain("SECRET");
  });

  it("has its counters with the time in seconds", () => {
    expect(
      metricShape({
        sandboxId: row.id,
        at: new Date("2026-10-01T00:00:01.900Z"),
        cpuCount: 1,
        cpuUsedPct: 12.5,
        memoryBytes: 1,
        memoryLimitBytes: 2,
        memoryCacheBytes: 3,
        diskBytes: 4,
        diskLimitBytes: 5,
      }),
    ).toEqual({
      timestamp: "2026-10-01T00:00:01.900Z",
      timestampUnix: 1_790_812_801,
      cpuCount: 1,
      cpuUsedPct: 12.5,
      memUsed: 1,
      memTotal: 2,
      memCache: 3,
      diskUsed: 4,
      diskTotal: 5,
    });
  });
});

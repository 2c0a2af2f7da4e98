import { expect, test } from "vitest";
import { defaultLimitsFor, mostByDefault } from "./default-limits.js";
import type { HostCapacity } from "./types.js";

const MIB = 1024 * 1024;
const host = (memoryMb: number, pids: number, diskMb: number): HostCapacity => ({
  memoryBytes: memoryMb * MIB,
  memoryAvailableBytes: 0,
  cpus: 2,
  pids,
  pidsAvailable: 0,
  diskBytes: diskMb * MIB,
  diskUsedBytes: 0,
});

test("a large host gives the defaults", () => {
  const limits = { memoryBytes: 512 * MIB, pids: 256, diskBytes: 1024 * MIB };
  expect(defaultLimitsFor(host(16_384, 30_000, 100_000))).toEqual(limits);
});

test("a small host gives a quarter of itself at most, and never so little that nothing runs", () => {
  expect(defaultLimitsFor(host(1024, 400, 2048))).toEqual({ memoryBytes: 256 * MIB, pids: 100, diskBytes: 512 * MIB });
  expect(mostByDefault(host(64, 20, 32))).toEqual({ memoryBytes: 32 * MIB, pids: 16, diskBytes: 16 * MIB });
});

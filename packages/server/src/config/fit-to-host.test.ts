import { expect, test, vi } from "vitest";
import { fitToHost } from "./fit-to-host.js";
import { defaultConfig } from "./schema.js";

const MIB = 1024 * 1024;
const host = (memoryMb: number, pids: number, diskMb: number) => ({
  memoryBytes: memoryMb * MIB,
  memoryAvailableBytes: memoryMb * MIB,
  cpus: 2,
  pids,
  pidsAvailable: pids,
  diskBytes: diskMb * MIB,
  diskUsedBytes: 0,
});

test("a host that is large enough changes nothing", () => {
  const config = defaultConfig();
  const info = vi.fn();
  expect(fitToHost(config, host(16_384, 30_000, 100_000), { info })).toEqual(config);
  expect(info).not.toHaveBeenCalled();
});

test("on a small one a sandbox that asks for nothing gets a quarter of it, which is said", () => {
  const info = vi.fn();
  expect(fitToHost(defaultConfig(), host(1024, 400, 2048), { info })).toMatchObject({
    sandboxMemoryMb: 256,
    sandboxPids: 100,
    sandboxDiskMb: 512,
  });
  expect(info).toHaveBeenCalledTimes(3);
});

test("and never less than a sandbox needs", () => {
  expect(fitToHost(defaultConfig(), host(64, 20, 32), { info: vi.fn() })).toMatchObject({
    sandboxMemoryMb: 32,
    sandboxPids: 16,
    sandboxDiskMb: 16,
  });
});

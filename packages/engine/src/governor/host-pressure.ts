/** How short the host is of memory and of processes, as a whole. */
import { readStallFile } from "../cgroups/index.js";
import { type HostSources, readHostCapacity } from "./host-budget.js";
import { type PressureReading, type StallFigures, stallPercent } from "./pressure.js";

const HOST_FILE = "/proc/pressure/memory";
/**
 * A sandbox that wrestles with its own limit waits for memory too, and the host's figures count that. They tell something of
 * the host only while the host has little left.
 */
const SHORT_FROM = 0.75;

function worse(a: StallFigures | undefined, b: StallFigures | undefined): StallFigures | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return stallPercent(a) >= stallPercent(b) ? a : b;
}

export function readHostPressure(host: HostSources): PressureReading {
  const { memoryBytes, memoryAvailableBytes, pids, pidsAvailable } = readHostCapacity(host);
  const usedBytes = Math.max(0, memoryBytes - memoryAvailableBytes);
  const { pressureFile } = host.cgroups;
  const stall = worse(readStallFile(HOST_FILE), pressureFile === undefined ? undefined : readStallFile(pressureFile));
  const isShort = usedBytes >= memoryBytes * SHORT_FROM;
  return {
    memory: {
      stall: stall === undefined || isShort ? stall : { some: 0, full: 0 },
      usedBytes,
      limitBytes: memoryBytes,
    },
    processes: { used: Math.max(0, pids - pidsAvailable), limit: pids },
  };
}

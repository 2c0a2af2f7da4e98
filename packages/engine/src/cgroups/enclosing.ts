/** What the cgroups above our sandboxes allow all of them together: a container's limits, a service's, a slice's. */
import { readCacheBytes, readHeldBytes } from "./counters.js";
import type { Hierarchy } from "./hierarchies.js";
import { readKernelFile, readNumber } from "./kernel-files.js";
import { parseCpuMax } from "./parse.js";
import type { CgroupSetup } from "./sandbox-cgroup.js";
import type { EnclosingLimits } from "./types.js";

/** From our own directory up to the root of the mount. */
function directoriesAbove({ base, mountPoint }: Hierarchy): string[] {
  const directories: string[] = [];
  for (let at = base; at.length >= mountPoint.length; at = at.slice(0, at.lastIndexOf("/"))) directories.push(at);
  return directories;
}

function least(values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}

function memoryLimit({ version }: Hierarchy, directory: string): number | undefined {
  return readNumber(`${directory}/${version === 2 ? "memory.max" : "memory.limit_in_bytes"}`);
}

function memoryAvailable(hierarchy: Hierarchy, directory: string): number | undefined {
  const limit = memoryLimit(hierarchy, directory);
  if (limit === undefined) return undefined;
  const held = readHeldBytes(hierarchy, directory) - readCacheBytes(hierarchy, directory);
  return Math.max(0, limit - Math.max(0, held));
}

function pidsAvailable(directory: string): number | undefined {
  const limit = readNumber(`${directory}/pids.max`);
  if (limit === undefined) return undefined;
  return Math.max(0, limit - (readNumber(`${directory}/pids.current`) ?? 0));
}

function cpuLimit({ version }: Hierarchy, directory: string): number | undefined {
  if (version === 2) {
    const max = parseCpuMax(readKernelFile(`${directory}/cpu.max`) ?? "");
    return max === undefined ? undefined : max.quotaUsec / max.periodUsec;
  }
  const quotaUsec = readNumber(`${directory}/cpu.cfs_quota_us`);
  const periodUsec = readNumber(`${directory}/cpu.cfs_period_us`);
  return quotaUsec === undefined || periodUsec === undefined || periodUsec === 0 ? undefined : quotaUsec / periodUsec;
}

/** Of everything in our own directory. */
export function readUsage({ memory, pids }: CgroupSetup): { memoryBytes: number; pids: number } {
  const held = readHeldBytes(memory, memory.base) - readCacheBytes(memory, memory.base);
  return { memoryBytes: Math.max(0, held), pids: readNumber(`${pids.base}/pids.current`) ?? 0 };
}

export function readEnclosingLimits({ memory, pids, cpu }: CgroupSetup): EnclosingLimits {
  const memoryDirectories = directoriesAbove(memory);
  return {
    memoryBytes: least(memoryDirectories.map((directory) => memoryLimit(memory, directory))),
    memoryAvailableBytes: least(memoryDirectories.map((directory) => memoryAvailable(memory, directory))),
    pids: least(directoriesAbove(pids).map((directory) => readNumber(`${directory}/pids.max`))),
    pidsAvailable: least(directoriesAbove(pids).map(pidsAvailable)),
    cpus: cpu === undefined ? undefined : least(directoriesAbove(cpu).map((directory) => cpuLimit(cpu, directory))),
  };
}

/** What this process may give to sandboxes. */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import type { HostCapacity } from "../engine.js";
import type { HostParts } from "./host-parts.js";

function readNumberOf(path: string): number {
  const value = Number(readFileSync(path, "utf8").trim());
  return Number.isSafeInteger(value) ? value : Number.POSITIVE_INFINITY;
}

export function readCapacity(host: Pick<HostParts, "cgroups" | "pool">): HostCapacity {
  const meminfo = readFileSync("/proc/meminfo", "utf8");
  const memory = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(meminfo)?.[1] ?? 0) * 1024;
  const around = host.cgroups.enclosingLimits();
  const disk = host.pool.capacity();
  return {
    memoryBytes: Math.min(memory("MemTotal"), around.memoryBytes ?? Number.POSITIVE_INFINITY),
    memoryAvailableBytes: Math.min(memory("MemAvailable"), around.memoryAvailableBytes ?? Number.POSITIVE_INFINITY),
    cpus: Math.min(availableParallelism(), around.cpus ?? Number.POSITIVE_INFINITY),
    pids: Math.min(
      readNumberOf("/proc/sys/kernel/pid_max"),
      readNumberOf("/proc/sys/kernel/threads-max"),
      around.pids ?? Number.POSITIVE_INFINITY,
    ),
    diskBytes: disk.totalBytes,
    diskUsedBytes: disk.usedBytes,
  };
}

/** What there is to promise: all that this process may use, less what is kept back and what others hold. */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import type { CgroupHost } from "../cgroups/index.js";
import type { Pool } from "../storage/pool.js";
import { type Amounts, mapAmounts, type Resource } from "./amounts.js";
import type { HostBudget, HostCapacity } from "./types.js";

const MIB = 1024 * 1024;
const GIB = 1024 * MIB;

export interface HostSources {
  readonly cgroups: CgroupHost;
  readonly pool: Pick<Pool, "capacity">;
}

/** Kept for the host and for ourselves: a share of the whole, within bounds. */
const RESERVES: Readonly<Record<Resource, { readonly share: number; readonly least: number; readonly most: number }>> =
  {
    memoryBytes: { share: 0.05, least: 192 * MIB, most: 2 * GIB },
    pids: { share: 0.05, least: 32, most: 1024 },
    diskBytes: { share: 0.02, least: 256 * MIB, most: 5 * GIB },
  };

export interface BudgetSettings {
  /** What is kept back; what is not said is a share of the whole. */
  readonly reserve?: Partial<Amounts> | undefined;
  /** How many times over the host is promised: 1 is not at all. */
  readonly overcommit?: Partial<Amounts> | undefined;
}

function readNumberOf(path: string): number {
  const value = Number(readFileSync(path, "utf8").trim());
  return Number.isSafeInteger(value) ? value : Number.POSITIVE_INFINITY;
}

/** Processes and threads on the whole host: the kernel shows them with the load. */
function threadsOfHost(): number {
  return Number(/ \d+\/(\d+) /.exec(readFileSync("/proc/loadavg", "utf8"))?.[1] ?? 0);
}

export function readHostCapacity(host: HostSources): HostCapacity {
  const meminfo = readFileSync("/proc/meminfo", "utf8");
  const memory = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(meminfo)?.[1] ?? 0) * 1024;
  const around = host.cgroups.enclosingLimits();
  const disk = host.pool.capacity();
  const pids = Math.min(readNumberOf("/proc/sys/kernel/pid_max"), readNumberOf("/proc/sys/kernel/threads-max"));
  return {
    memoryBytes: Math.min(memory("MemTotal"), around.memoryBytes ?? Number.POSITIVE_INFINITY),
    memoryAvailableBytes: Math.min(memory("MemAvailable"), around.memoryAvailableBytes ?? Number.POSITIVE_INFINITY),
    cpus: Math.min(availableParallelism(), around.cpus ?? Number.POSITIVE_INFINITY),
    pids: Math.min(pids, around.pids ?? Number.POSITIVE_INFINITY),
    pidsAvailable: Math.max(0, Math.min(pids - threadsOfHost(), around.pidsAvailable ?? Number.POSITIVE_INFINITY)),
    diskBytes: disk.totalBytes,
    diskUsedBytes: disk.usedBytes,
  };
}

function reserveOf(resource: Resource, total: number): number {
  const { share, least, most } = RESERVES[resource];
  // On a host so small that the least would be most of it, half is for the sandboxes all the same.
  return Math.floor(Math.min(Math.max(total * share, least), most, total / 2));
}

export function readHostBudget(host: HostSources, settings: BudgetSettings, usedDiskBytes: number): HostBudget {
  const capacity = readHostCapacity(host);
  const held = host.cgroups.usage();
  const total: Amounts = { memoryBytes: capacity.memoryBytes, pids: capacity.pids, diskBytes: capacity.diskBytes };
  const used: Amounts = { ...held, diskBytes: usedDiskBytes };
  const available: Amounts = {
    memoryBytes: capacity.memoryAvailableBytes,
    pids: capacity.pidsAvailable,
    diskBytes: capacity.diskBytes - capacity.diskUsedBytes,
  };
  const reserve = mapAmounts((resource) => settings.reserve?.[resource] ?? reserveOf(resource, total[resource]));
  const promise = (resource: Resource, amount: number) =>
    Math.max(0, Math.floor((amount - reserve[resource]) * (settings.overcommit?.[resource] ?? 1)));
  const bounded = (resource: Resource) => Math.min(total[resource], available[resource] + used[resource]);
  return {
    host: capacity,
    reserve,
    capacity: mapAmounts((resource) => promise(resource, total[resource])),
    room: mapAmounts((resource) => promise(resource, bounded(resource))),
    used,
  };
}

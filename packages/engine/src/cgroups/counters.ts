/** Reads what the kernel counted. Nothing here throws because a cgroup ended meanwhile. */
import type { Hierarchy } from "./hierarchies.js";
import { listChildren, readKeyed, readNumber } from "./kernel-files.js";
import { GUEST_PIDS } from "./limits.js";
import type { CommandCounters, SandboxCounters } from "./types.js";

/** The directories of one cgroup, by what is read there. */
export interface CounterDirs {
  readonly memory: string;
  readonly pids: string;
  readonly unified: string | undefined;
}

export interface CounterHierarchies {
  readonly memory: Hierarchy;
  readonly pids: Hierarchy;
}

/** `failcnt` says nothing about kills (measured: 0 after a kill by a limit one level up); this file does. */
export function readOomKills(memory: Hierarchy, directory: string): number {
  const file = memory.version === 2 ? "memory.events" : "memory.oom_control";
  return readKeyed(`${directory}/${file}`)?.get("oom_kill") ?? 0;
}

export function readForksRefused(directory: string): number {
  return readKeyed(`${directory}/pids.events`)?.get("max") ?? 0;
}

function readMemory(memory: Hierarchy, directory: string) {
  const v2 = memory.version === 2;
  return {
    bytes: readNumber(`${directory}/${v2 ? "memory.current" : "memory.usage_in_bytes"}`),
    peakBytes: readNumber(`${directory}/${v2 ? "memory.peak" : "memory.max_usage_in_bytes"}`),
    limitBytes: readNumber(`${directory}/${v2 ? "memory.max" : "memory.limit_in_bytes"}`),
  };
}

/** Of a cgroup and all below it. */
export function readCacheBytes(memory: Pick<Hierarchy, "version">, directory: string): number {
  const stat = readKeyed(`${directory}/memory.stat`);
  const prefix = memory.version === 2 ? "" : "total_";
  return (stat?.get(`${prefix}active_file`) ?? 0) + (stat?.get(`${prefix}inactive_file`) ?? 0);
}

export function readHeldBytes(memory: Hierarchy, directory: string): number {
  return readNumber(`${directory}/${memory.version === 2 ? "memory.current" : "memory.usage_in_bytes"}`) ?? 0;
}

function readOwnLimitHits(memory: Hierarchy, directory: string): number {
  if (memory.version === 1) return readNumber(`${directory}/memory.failcnt`) ?? 0;
  const events = readKeyed(`${directory}/memory.events.local`) ?? readKeyed(`${directory}/memory.events`);
  return events?.get("oom") ?? 0;
}

function readCpuUsec(unified: string | undefined): number | undefined {
  return unified === undefined ? undefined : readKeyed(`${unified}/cpu.stat`)?.get("usage_usec");
}

export function readCommandCounters(by: CounterHierarchies, at: CounterDirs): CommandCounters | undefined {
  const memory = readMemory(by.memory, at.memory);
  if (memory.bytes === undefined) return undefined;
  return {
    memoryBytes: memory.bytes,
    memoryPeakBytes: memory.peakBytes,
    memoryLimitBytes: memory.limitBytes,
    oomKills: readOomKills(by.memory, at.memory),
    ownLimitHits: readOwnLimitHits(by.memory, at.memory),
    pids: readNumber(`${at.pids}/pids.current`) ?? 0,
    pidsPeak: readNumber(`${at.pids}/pids.peak`),
    pidsRefused: readForksRefused(at.pids),
    cpuUsec: readCpuUsec(at.unified),
  };
}

/** What cgroups that are gone had counted, where the kernel does not add it to the parent's. */
export interface RemovedCounts {
  oomKills: number;
  pidsRefused: number;
}

/** v1 counts in the cgroup of the victim and of the forker alone; the sum is ours to make. */
function sumChildren(directory: string, read: (child: string) => number): number {
  return listChildren(directory).reduce((sum, name) => sum + read(`${directory}/${name}`), 0);
}

export interface SandboxDirs extends CounterDirs {
  readonly cpu: string | undefined;
  readonly cpuacct: string | undefined;
}

export function readSandboxCounters(by: CounterHierarchies, at: SandboxDirs, removed: RemovedCounts): SandboxCounters {
  const memoryDir = `${at.memory}/cmd`;
  const pidsDir = `${at.pids}/cmd`;
  const memory = readMemory(by.memory, memoryDir);
  const oomKillsOf = (directory: string) => readOomKills(by.memory, directory);
  const oomKillsBelow = by.memory.version === 2 ? 0 : sumChildren(memoryDir, oomKillsOf) + removed.oomKills;
  const refusedBelow = by.pids.countsForksLocally ? sumChildren(pidsDir, readForksRefused) + removed.pidsRefused : 0;
  const pidsMax = readNumber(`${at.pids}/pids.max`);
  return {
    memoryBytes: memory.bytes ?? 0,
    memoryPeakBytes: memory.peakBytes,
    memoryLimitBytes: memory.limitBytes,
    memoryCacheBytes: readCacheBytes(by.memory, memoryDir),
    oomKills: oomKillsOf(memoryDir) + oomKillsBelow,
    guestMemoryBytes: readMemory(by.memory, `${at.memory}/guest`).bytes ?? 0,
    guestOomKills: oomKillsOf(`${at.memory}/guest`),
    pids: readNumber(`${at.pids}/pids.current`) ?? 0,
    pidsLimit: pidsMax === undefined ? undefined : pidsMax - GUEST_PIDS,
    pidsRefused: readForksRefused(pidsDir) + refusedBelow,
    cpuUsec: readCpuUsec(at.unified) ?? readCpuacctUsec(at.cpuacct),
    throttledUsec: readThrottledUsec(at.cpu),
  };
}

function readCpuacctUsec(directory: string | undefined): number | undefined {
  const nsec = directory === undefined ? undefined : readNumber(`${directory}/cpuacct.usage`);
  return nsec === undefined ? undefined : Math.round(nsec / 1000);
}

function readThrottledUsec(directory: string | undefined): number | undefined {
  const stat = directory === undefined ? undefined : readKeyed(`${directory}/cpu.stat`);
  const nsec = stat?.get("throttled_time");
  return nsec === undefined ? stat?.get("throttled_usec") : Math.round(nsec / 1000);
}

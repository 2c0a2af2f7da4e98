/** How the host is doing: what hostile programs would have taken from it. */
import { readdirSync, readFileSync, statfsSync } from "node:fs";
import { formatBytes } from "@holdfast/protocol";

export interface HostState {
  readonly availableBytes: number;
  readonly processes: number;
  readonly diskFreeBytes: number;
}

/** The kernel's own threads have no command line; they come and go as it pleases. */
function isProcess(name: string): boolean {
  try {
    return /^\d+$/.test(name) && readFileSync(`/proc/${name}/cmdline`).length > 0;
  } catch {
    // Gone while we looked.
    return false;
  }
}

export function readHostState(directory: string): HostState {
  const available = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync("/proc/meminfo", "utf8"))?.[1];
  const { bavail, bsize } = statfsSync(directory);
  return {
    availableBytes: Number(available ?? 0) * 1024,
    processes: readdirSync("/proc").filter(isProcess).length,
    diskFreeBytes: bavail * bsize,
  };
}

export function describeChange(before: HostState, after: HostState): string {
  return [
    `${formatBytes(before.availableBytes)} of memory available before, ${formatBytes(after.availableBytes)} after`,
    `${before.processes} processes before, ${after.processes} after`,
    `${formatBytes(before.diskFreeBytes)} of disk free before, ${formatBytes(after.diskFreeBytes)} after`,
  ].join("; ");
}

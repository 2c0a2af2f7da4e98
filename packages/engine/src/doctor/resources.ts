/** How much there is to share out, and what the host tells about those who took too much. */
import { closeSync, constants, openSync, statfsSync } from "node:fs";
import { formatBytes } from "@holdfast/protocol";
import { readKernelText } from "./read-kernel-text.js";
import type { DoctorRow } from "./row.js";

const GIB = 1024 ** 3;
const ENOUGH_PIDS = 32_768;

/** `directory` is where the pool is or will be; it exists. What of its file system is for sandboxes is the budget's to tell. */
export function inspectResources(directory: string): DoctorRow[] {
  const memory = parseMeminfo(readKernelText("/proc/meminfo") ?? "");
  return [memoryRow(memory), swapRow(memory), diskRow(directory), processesRow(), kernelLogRow()];
}

/** "MemTotal:  24684 kB" and so on, in bytes. */
export function parseMeminfo(text: string): ReadonlyMap<string, number> {
  const entries = [...text.matchAll(/^(\w+):\s+(\d+) kB$/gm)];
  return new Map(entries.map(([, name = "", kib]) => [name, Number(kib) * 1024]));
}

function memoryRow(memory: ReadonlyMap<string, number>): DoctorRow {
  const [total = 0, available = 0] = [memory.get("MemTotal"), memory.get("MemAvailable")];
  const by = `${formatBytes(available)} available of ${formatBytes(total)}`;
  if (available >= GIB / 2) return { name: "memory", state: "ok", by, required: false };
  return {
    name: "memory",
    state: "weak",
    by,
    remedy: "Sandboxes have 512 MiB each unless told otherwise.",
    required: false,
  };
}

function swapRow(memory: ReadonlyMap<string, number>): DoctorRow {
  const total = memory.get("SwapTotal") ?? 0;
  const by = total === 0 ? "none" : `${formatBytes(total)}; no part of a sandbox's memory`;
  return { name: "swap", state: "ok", by, required: false };
}

function diskRow(directory: string): DoctorRow {
  const { bavail, blocks, bsize } = statfsSync(directory);
  const free = bavail * bsize;
  const by = `${formatBytes(free)} free of ${formatBytes(blocks * bsize)}, the file system of ${directory}`;
  if (free >= 2 * GIB) return { name: "disk", state: "ok", by, required: false };
  return {
    name: "disk",
    state: "weak",
    by,
    remedy: "Free some space, or choose another --state-dir.",
    required: false,
  };
}

function processesRow(): DoctorRow {
  const name = "processes";
  const [pids, threads] = ["pid_max", "threads-max"].map((file) => Number(readKernelText(`/proc/sys/kernel/${file}`)));
  const by = `kernel.pid_max ${pids}, kernel.threads-max ${threads}`;
  if (Math.min(pids ?? 0, threads ?? 0) >= ENOUGH_PIDS) return { name, state: "ok", by, required: false };
  const remedy = "sysctl -w kernel.pid_max=4194304; threads-max follows the host's memory.";
  return { name, state: "weak", by, remedy, required: false };
}

function kernelLogRow(): DoctorRow {
  const name = "kernel log";
  try {
    closeSync(openSync("/dev/kmsg", constants.O_RDONLY | constants.O_NONBLOCK));
    return { name, state: "ok", by: "/dev/kmsg: names who was killed for memory", required: false };
  } catch {
    const by = "/dev/kmsg cannot be read: that something was killed for memory is known, who it was is not";
    return { name, state: "weak", by, remedy: "Run as root in a place that has /dev/kmsg.", required: false };
  }
}

/** On what machine the figures were taken. */
import { existsSync, readFileSync } from "node:fs";
import { cpus, loadavg, release, totalmem } from "node:os";
import { capture } from "./processes.js";

export interface HostFacts {
  readonly kernel: string;
  readonly cpu: string;
  readonly cpuCount: number;
  readonly memoryBytes: number;
  readonly cgroups: "v1" | "v2" | "hybrid";
  readonly node: string;
  readonly bubblewrap: string;
}

function cgroupKind(): HostFacts["cgroups"] {
  const types = new Set(
    readFileSync("/proc/self/mountinfo", "utf8")
      .split("\n")
      .flatMap((line) => line.split(" - ")[1]?.split(" ")[0] ?? []),
  );
  if (!types.has("cgroup")) return "v2";
  return types.has("cgroup2") ? "hybrid" : "v1";
}

export async function readHostFacts(): Promise<HostFacts> {
  return {
    kernel: release(),
    cpu: cpus()[0]?.model ?? "unknown CPU",
    cpuCount: cpus().length,
    memoryBytes: totalmem(),
    cgroups: cgroupKind(),
    node: process.versions.node,
    bubblewrap: (await capture(["bwrap", "--version"])).stdout.trim(),
  };
}

export const readLoad = (): number[] => loadavg();

export function readAvailableMemory(): number {
  const kib = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync("/proc/meminfo", "utf8"))?.[1];
  return Number(kib) * 1024;
}

/** The directory of the v1 memory controller, or of v2 with it at work at the root. */
export function memoryCgroupRoot(): { readonly path: string; readonly limitFile: string } | undefined {
  const v1 = "/sys/fs/cgroup/memory";
  if (existsSync(`${v1}/memory.limit_in_bytes`)) return { path: v1, limitFile: "memory.limit_in_bytes" };
  const control = "/sys/fs/cgroup/cgroup.subtree_control";
  if (existsSync(control) && readFileSync(control, "utf8").split(/\s/).includes("memory")) {
    return { path: "/sys/fs/cgroup", limitFile: "memory.max" };
  }
  return undefined;
}

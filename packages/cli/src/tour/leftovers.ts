/** What is left of a sandbox on the host, looked for and not assumed. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export interface Leftovers {
  readonly processes: number;
  readonly cgroups: number;
  readonly mounts: number;
  readonly files: number;
}

/** Sandboxes' cgroups lie a few levels down at most, also below a delegated one. */
const MAX_CGROUP_DEPTH = 8;

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // A process that went while we looked.
    return "";
  }
}

function directoriesIn(path: string): string[] {
  try {
    return readdirSync(path, { withFileTypes: true }).flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
  } catch {
    // A cgroup that went while we looked.
    return [];
  }
}

function countCgroups(directory: string, id: string, depth = 0): number {
  if (depth > MAX_CGROUP_DEPTH) return 0;
  return directoriesIn(directory)
    .map((name) => (name === id ? 1 : countCgroups(join(directory, name), id, depth + 1)))
    .reduce((sum, count) => sum + count, 0);
}

/** No process can leave its cgroup, so the one that it is in tells whose it is. */
function countProcesses(id: string): number {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.filter((pid) => readText(`/proc/${pid}/cgroup`).includes(`/${id}`)).length;
}

export function findLeftovers(id: string, stateDirectory: string): Leftovers {
  const mounts = readText("/proc/self/mountinfo").split("\n");
  const hierarchies = mounts.filter((line) => / - cgroup2? /.test(line)).map((line) => line.split(" ")[4] ?? "");
  const places = ["sandboxes", "pool", "disks"].map((name) => join(stateDirectory, name, id));
  return {
    processes: countProcesses(id),
    cgroups: hierarchies.map((path) => countCgroups(path, id)).reduce((sum, count) => sum + count, 0),
    mounts: mounts.filter((line) => line.includes(id)).length,
    files: places.filter((path) => existsSync(path)).length,
  };
}

export function describeLeftovers(found: Leftovers): string {
  const parts = Object.entries(found).flatMap(([what, count]) => (count === 0 ? [] : [`${count} ${what}`]));
  return parts.length === 0 ? "nothing" : parts.join(", ");
}

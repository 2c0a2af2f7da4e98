/**
 * What the host that the tests run on can carry: nearly everything runs on one of 2 GiB and 400 processes as well (`npm run
 * test:small-host`), if it asks for no more than that. A machine without limits around us carries whatever a test is about.
 */
import { readFileSync } from "node:fs";
import { totalmem } from "node:os";
import { dirname, join } from "node:path";

const MIB = 1024 * 1024;
const ROOT = "/sys/fs/cgroup";
/** Of these the runner of the tests, a server and what a host keeps back take their share. */
const OTHERS = { memoryBytes: 800 * MIB, pids: 140 };
/** What each sandbox is counted with beside its limits. */
const GUEST = { memoryBytes: 8 * MIB, pids: 8 };

function leastUpwards(controller: string, files: readonly string[]): number {
  const own = readFileSync("/proc/self/cgroup", "utf8").split("\n");
  const inV1 = own.find((line) => line.split(":")[1]?.split(",").includes(controller) === true);
  const line = inV1 ?? own.find((text) => text.startsWith("0::")) ?? "0::/";
  const root = inV1 === undefined ? ROOT : join(ROOT, controller);
  let least = Number.POSITIVE_INFINITY;
  for (let at = join(root, line.split(":")[2] ?? "/"); at.startsWith(root); at = dirname(at)) {
    for (const file of files) least = Math.min(least, readLimit(join(at, file)));
  }
  return least;
}

function readLimit(path: string): number {
  try {
    const value = Number(readFileSync(path, "utf8"));
    return Number.isSafeInteger(value) ? value : Number.POSITIVE_INFINITY;
  } catch {
    return Number.POSITIVE_INFINITY; // at the root there is no such file
  }
}

/** The cgroups around this process; infinite where there is no limit. */
const AROUND = {
  memoryBytes: leastUpwards("memory", ["memory.max", "memory.limit_in_bytes"]),
  pids: leastUpwards("pids", ["pids.max"]),
};

const IS_SMALL = AROUND.memoryBytes <= 4096 * MIB;

/** What a sandbox of a test's server has unless the test says otherwise. */
export const SANDBOX_MEMORY_BYTES = (IS_SMALL ? 256 : 512) * MIB;

/** A quarter of a small host for each that asks for nothing is too much for tests that have several at once. */
export const SERVER_DEFAULTS: Readonly<Record<string, string>> = {
  ...(AROUND.pids <= 1000 ? { HOLDFAST_SERVE_SANDBOX_PIDS: "40" } : {}),
  ...(IS_SMALL ? { HOLDFAST_SERVE_SANDBOX_MEMORY_MB: `${SANDBOX_MEMORY_BYTES / MIB}` } : {}),
};

/** E2B's SDK asks for 1 GiB for every template, and so for every sandbox of it, unless it is told otherwise. */
export const TEMPLATE_DEFAULTS: { readonly memoryMB?: number } = IS_SMALL ? { memoryMB: 256 } : {};

/** What an image has to start in of which nobody has said anything: a quarter of the host at most. */
export const DEFAULT_FLOOR_BYTES = Math.min(
  1024 * MIB,
  Math.floor(Math.min(AROUND.memoryBytes, totalmem()) / 4 / MIB) * MIB,
);

/** As many of so many sandboxes of a size as there is room for at once. */
export function fitting(count: number, size: { readonly memoryBytes?: number; readonly pids?: number }): number {
  const memory = (AROUND.memoryBytes - OTHERS.memoryBytes) / ((size.memoryBytes ?? 0) + GUEST.memoryBytes);
  const pids = (AROUND.pids - OTHERS.pids) / ((size.pids ?? 0) + GUEST.pids);
  return Math.max(1, Math.min(count, Math.floor(memory), Math.floor(pids)));
}

/**
 * For `skipIf`: what a test is about is more than this host has. With a reason, because it is only for what cannot be had for
 * less: whatever can, asks for less.
 */
export function lacksHost(need: { readonly memoryMb?: number; readonly pids?: number; readonly why: string }): boolean {
  return (
    (need.memoryMb ?? 0) * MIB > AROUND.memoryBytes - OTHERS.memoryBytes || (need.pids ?? 0) > AROUND.pids - OTHERS.pids
  );
}

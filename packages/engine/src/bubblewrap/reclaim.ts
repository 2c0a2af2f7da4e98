/** Has the kernel take back what memory it can from a sandbox. Nothing is ever killed for it. */
import { existsSync } from "node:fs";
import type { SandboxCgroup } from "../cgroups/index.js";
import { readKernelFile, writeKernelFile } from "../cgroups/kernel-files.js";
import type { Launcher } from "../host/launcher.js";

/** Resolves to the bytes released; 0 where this kernel offers no way to ask for them. */
export async function reclaimMemory(
  launcher: Launcher,
  cgroup: SandboxCgroup,
  options: { readonly limitMs: number },
): Promise<number> {
  const before = cgroup.readHeldBytes();
  const { file, value, swapLimitFiles } = cgroup.reclaimPlan();
  if (!existsSync(file)) return 0;
  // Whoever runs shall not be slowed down by swapping; whoever is frozen notices nothing.
  const lifted = cgroup.isFrozen() ? swapLimitFiles.map((path) => ({ path, value: readKernelFile(path) })) : [];
  try {
    for (const { path } of lifted) writeKernelFile(path, "max");
    await launcher.reclaim(file, value, options.limitMs);
  } finally {
    // What is in swap by now may stay there.
    for (const { path, value: limit } of lifted) if (limit !== undefined) restore(path, limit.trim());
  }
  return Math.max(0, before - cgroup.readHeldBytes());
}

function restore(path: string, value: string): void {
  try {
    writeKernelFile(path, value);
  } catch {
    // The sandbox has ended meanwhile, and its cgroup with it.
  }
}

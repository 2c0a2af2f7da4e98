/** How a sandbox was when its end began. Quick: whoever ends it waits for this. */
import type { SandboxCgroup } from "../cgroups/index.js";
import type { FinalLook } from "../engine.js";
import type { Disk, Pool } from "../storage/pool.js";
import { readProcessRows } from "./process-rows.js";

/** A sandbox of thousands of processes is not listed to its end. */
const PROCESSES_BUDGET_MS = 4;

export function takeFinalLook(pool: Pool, cgroup: SandboxCgroup, disk: Disk): FinalLook | undefined {
  try {
    const counters = cgroup.readSandbox();
    const processes = readProcessRows(cgroup, { budgetMs: PROCESSES_BUDGET_MS });
    return {
      processes,
      counters: {
        memoryBytes: counters.memoryBytes,
        memoryPeakBytes: counters.memoryPeakBytes ?? null,
        memoryCacheBytes: counters.memoryCacheBytes,
        memoryLimitBytes: counters.memoryLimitBytes ?? null,
        guestMemoryBytes: counters.guestMemoryBytes,
        oomKills: counters.oomKills,
        guestOomKills: counters.guestOomKills,
        pids: counters.pids,
        pidsLimit: counters.pidsLimit ?? null,
        pidsRefused: counters.pidsRefused,
        cpuMs: counters.cpuUsec === undefined ? null : counters.cpuUsec / 1000,
        throttledMs: counters.throttledUsec === undefined ? null : counters.throttledUsec / 1000,
        diskBytes: pool.knownUsedBytes(disk),
      },
    };
  } catch {
    // Its cgroups went while we looked; it shall end all the same.
    return undefined;
  }
}

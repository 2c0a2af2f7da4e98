/** The host's budget: what there is, what is promised, what is held, and by whom. */
import type { Engine } from "@holdfast/engine";
import type { HostInfo } from "@holdfast/protocol";
import type { SandboxLife } from "./sandbox-life.js";

export async function hostInfo(
  parts: { readonly engine: Engine; readonly version: string },
  lives: readonly SandboxLife[],
): Promise<HostInfo> {
  const capacity = await parts.engine.capacity();
  const running = lives.filter((life) => life.row.status === "running").map((life) => life.row.limits);
  const held = { running: 0, paused: 0, pids: 0 };
  for (const { sandbox } of lives) {
    // It may end while we look.
    const stats = await sandbox?.stats().catch(() => undefined);
    if (sandbox === undefined || stats === undefined) continue;
    held[sandbox.state === "frozen" ? "paused" : "running"] += stats.memoryBytes;
    held.pids += stats.pids;
  }
  return {
    version: parts.version,
    memory: {
      capacityBytes: capacity.memoryBytes,
      promisedBytes: running.reduce((sum, limits) => sum + limits.memoryBytes, 0),
      usedBytes: held.running,
      pausedBytes: held.paused,
      availableBytes: capacity.memoryAvailableBytes,
    },
    cpus: capacity.cpus,
    pids: {
      capacity: capacity.pids,
      promised: running.reduce((sum, limits) => sum + limits.pids, 0),
      used: held.pids,
    },
    disk: { capacityBytes: capacity.diskBytes, usedBytes: capacity.diskUsedBytes },
    sandboxes: { running: running.length, paused: lives.length - running.length },
    engine: parts.engine.kind,
  };
}

/** The host's budget: what there is, what is promised, what is held, and by whom. */
import type { Engine } from "@holdfast/engine";
import type { HostInfo, HostPressure, WarmInfo } from "@holdfast/protocol";
import type { SandboxLife } from "./sandbox-life.js";
import type { Caller } from "./types.js";

export async function hostInfo(
  parts: { readonly engine: Engine; readonly version: string; readonly pressure: HostPressure },
  lives: readonly SandboxLife[],
  caller: Caller,
): Promise<HostInfo> {
  const budget = await parts.engine.budget();
  const { host, reserve, capacity, room, reserved } = budget;
  const running = lives.filter((life) => life.row.status === "running").length;
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
      totalBytes: host.memoryBytes,
      reserveBytes: reserve.memoryBytes,
      mostBytes: capacity.memoryBytes,
      roomBytes: room.memoryBytes,
      promisedBytes: reserved.memoryBytes,
      usedBytes: held.running,
      pausedBytes: held.paused,
      availableBytes: host.memoryAvailableBytes,
      capacityBytes: host.memoryBytes,
    },
    cpus: host.cpus,
    pids: {
      total: host.pids,
      reserve: reserve.pids,
      most: capacity.pids,
      room: room.pids,
      promised: reserved.pids,
      used: held.pids,
      capacity: host.pids,
    },
    disk: {
      totalBytes: host.diskBytes,
      reserveBytes: reserve.diskBytes,
      mostBytes: capacity.diskBytes,
      roomBytes: room.diskBytes,
      promisedBytes: reserved.diskBytes,
      usedBytes: host.diskUsedBytes,
      heldBytes: budget.used.diskBytes,
      capacityBytes: host.diskBytes,
    },
    reservations: budget.reservations
      .filter(({ lane }) => caller.kind === "operator" || lane === caller.keyId)
      .map(({ id, kind, lane, amounts }) => ({ id, kind: kind ?? null, key: lane ?? null, ...amounts })),
    waiting: budget.waiting,
    pressure: caller.kind === "operator" ? parts.pressure : withoutOthers(parts.pressure),
    sandboxes: { running, paused: lives.length - running },
    warm: warmInfo(parts.engine),
    engine: parts.engine.kind,
  };
}

function warmInfo(engine: Engine): WarmInfo {
  const { ready, made, hits, misses, waste, reserved, used } = engine.warm.stats();
  return {
    ready,
    promisedBytes: reserved.memoryBytes,
    promisedPids: reserved.pids,
    usedBytes: used.memoryBytes,
    usedPids: used.pids,
    made,
    hits,
    misses,
    waste,
  };
}

/** How short the host is concerns everybody; whose sandboxes were cleaned up is the operator's to know. */
function withoutOthers(pressure: HostPressure): HostPressure {
  const isOfHost = ({ kind }: HostPressure["events"][number]) => kind === "pressure" || kind === "pid_pressure";
  return { ...pressure, events: pressure.events.filter(isOfHost) };
}

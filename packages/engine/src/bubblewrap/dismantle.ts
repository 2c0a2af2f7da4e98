/**
 * Takes a sandbox apart, whatever state it is in: half made, running, frozen, dead, left by a process that was killed in
 * the middle of this very function. Every step may find its work done already. The record goes last: as long as it is
 * there, a sweep comes back.
 */
import { readFileSync, rmSync } from "node:fs";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { SandboxCgroup } from "../cgroups/index.js";
import { bootId } from "../host/processes.js";
import { listUidClaims, releaseUidRange } from "../host/uid-ranges.js";
import type { HostParts } from "./host-parts.js";
import { STANDSTILL_FILE } from "./standstill.js";

const KILL_DEADLINE_MS = 10_000;
/** How long a monitor may take to reap the guest and to end; it does nothing else. */
const MONITOR_DEADLINE_MS = 2000;
const MONITOR_LOOK_MS = 100;

/** The process on the host that started the guest: first the launcher, then the bubblewrap it became. Our child. */
export interface Monitor {
  readonly pid: number;
  readonly exited: Promise<string>;
  hasExited(): boolean;
}

/**
 * Ends the guest, and with it its PID namespace, but lets the monitor live to reap it. Were both killed at once, the
 * guest would become a zombie of whatever is PID 1 here, which in a container is a program that reaps nothing.
 */
async function endUnderMonitor(cgroup: SandboxCgroup, monitor: Monitor): Promise<void> {
  const deadline = Date.now() + MONITOR_DEADLINE_MS;
  while (!monitor.hasExited() && Date.now() < deadline) {
    if (cgroup.isFrozen()) await cgroup.thaw();
    if (isAlone(cgroup, monitor.pid)) {
      // It might be about to fork, or not even have joined its cgroup: it may only be killed while it stands still.
      signalQuietly(monitor.pid, "SIGSTOP");
      await waitUntilStopped(monitor);
      signalQuietly(monitor.pid, isAlone(cgroup, monitor.pid) ? "SIGKILL" : "SIGCONT");
    }
    await Promise.race([monitor.exited, sleep(MONITOR_LOOK_MS)]);
  }
}

/** Kills all but the monitor; true if there was nobody, dead or alive, for it to wait for. */
function isAlone(cgroup: SandboxCgroup, monitorPid: number): boolean {
  const others = cgroup.guestProcesses().filter((pid) => pid !== monitorPid);
  for (const pid of others) signalQuietly(pid, "SIGKILL");
  return others.length === 0 && !hasChildren(monitorPid);
}

/** A child that is dead and not yet reaped counts: it is what the monitor is there for. */
function hasChildren(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim() !== "";
  } catch {
    // It ended meanwhile, or this kernel does not tell.
    return false;
  }
}

async function waitUntilStopped(monitor: Monitor): Promise<void> {
  const deadline = Date.now() + MONITOR_LOOK_MS;
  while (!monitor.hasExited() && Date.now() < deadline) {
    try {
      const stat = readFileSync(`/proc/${monitor.pid}/stat`, "utf8");
      if (/^[TtZX]/.test(stat.slice(stat.lastIndexOf(")") + 2))) return;
    } catch {
      return;
    }
    await nextTurn();
  }
}

/** Only for our own child and for what its cgroup listed a moment ago. */
function signalQuietly(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It was quicker.
  }
}

/** Kills by cgroup and waits until it is empty. Throws if something cannot be killed (it hangs in the kernel). */
export async function killSandboxProcesses(cgroup: SandboxCgroup, monitor?: Monitor): Promise<void> {
  if (monitor !== undefined && !monitor.hasExited()) await endUnderMonitor(cgroup, monitor);
  if (cgroup.isEmpty()) return;
  const { survivors } = await cgroup.kill({ deadlineMs: KILL_DEADLINE_MS });
  if (survivors.length > 0) {
    throw new HoldfastError(
      "engine_fault",
      `processes of sandbox ${cgroup.id} outlived SIGKILL for ${KILL_DEADLINE_MS} ms: ${survivors.join(", ")}`,
      {
        hint: "They hang in the kernel, usually on a disk that does not answer. The next sweep tries again.",
        details: { survivors },
      },
    );
  }
}

/**
 * Ends what runs of a sandbox and gives back what it holds of the host: cgroups, uids, its socket. Its files and its record
 * stay. Every step may find its work done already.
 */
export async function takeDown(
  host: HostParts,
  id: SandboxId,
  known: {
    readonly cgroup?: SandboxCgroup | undefined;
    readonly monitor?: Monitor | undefined;
    readonly uidSlot?: number | undefined;
  } = {},
): Promise<void> {
  const record = known.cgroup === undefined ? host.records.read(id) : undefined;
  const isOfThisBoot = record !== undefined && record.bootId === bootId();
  const cgroup =
    known.cgroup ??
    (!isOfThisBoot ? undefined : host.cgroups.openAt(record.cgroupPaths as Record<string, string>)) ??
    host.cgroups.open(id);
  if (cgroup !== undefined) {
    await killSandboxProcesses(cgroup, known.monitor);
    cgroup.remove();
  }
  if (known.uidSlot !== undefined) {
    releaseUidRange(known.uidSlot);
  } else {
    // By name, not by what the record says: that range may since have been given to another.
    const directory = host.records.pathOf(id);
    for (const claim of listUidClaims()) if (claim.owner === directory) releaseUidRange(claim.slot);
  }
  rmSync(host.records.socketPath(id), { force: true });
  rmSync(host.records.pathOf(id, STANDSTILL_FILE), { force: true });
  // Last: what it held is free only now.
  host.governor.release(id);
}

export async function dismantle(
  host: HostParts,
  id: SandboxId,
  known: {
    readonly cgroup?: SandboxCgroup | undefined;
    readonly monitor?: Monitor | undefined;
    readonly uidSlot?: number | undefined;
    readonly diskPath?: string | undefined;
  } = {},
): Promise<void> {
  const diskPath = known.diskPath ?? host.records.read(id)?.disk.path ?? diskPathOf(host, id);
  await takeDown(host, id, known);
  await host.pool.remove(diskPath);
  host.records.remove(id);
}

export function diskPathOf(host: Pick<HostParts, "pool">, id: SandboxId): string {
  return `${host.pool.directory}/${id}`;
}

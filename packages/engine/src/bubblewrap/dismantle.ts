/**
 * Takes a sandbox apart, whatever state it is in: half made, running, frozen, dead, left by a process that was killed in
 * the middle of this very function. Every step may find its work done already. The record goes last: as long as it is
 * there, a sweep comes back.
 */
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { SandboxCgroup } from "../cgroups/index.js";
import { listUidClaims, releaseUidRange } from "../host/uid-ranges.js";
import type { HostParts } from "./host-parts.js";

const KILL_DEADLINE_MS = 10_000;

/** Kills by cgroup and waits until it is empty. Throws if something cannot be killed (it hangs in the kernel). */
export async function killSandboxProcesses(cgroup: SandboxCgroup): Promise<void> {
  const { survivors } = await cgroup.kill({ deadlineMs: KILL_DEADLINE_MS });
  if (survivors.length > 0) {
    throw new HoldfastError("engine_fault", `processes of sandbox ${cgroup.id} outlived SIGKILL for ${KILL_DEADLINE_MS} ms: ${survivors.join(", ")}`, {
      hint: "They hang in the kernel, usually on a disk that does not answer. The next sweep tries again.",
      details: { survivors },
    });
  }
}

export async function dismantle(
  host: HostParts,
  id: SandboxId,
  known: { readonly cgroup?: SandboxCgroup | undefined; readonly uidSlot?: number | undefined; readonly diskPath?: string | undefined } = {},
): Promise<void> {
  const record = host.records.read(id);
  const cgroup = known.cgroup ?? (record === undefined ? undefined : host.cgroups.openAt(record.cgroupPaths as Record<string, string>)) ?? host.cgroups.open(id);
  if (cgroup !== undefined) {
    await killSandboxProcesses(cgroup);
    cgroup.remove();
  }
  await host.pool.remove(known.diskPath ?? record?.disk.path ?? diskPathOf(host, id));
  const slot = known.uidSlot ?? record?.uidSlot;
  if (slot !== undefined) {
    releaseUidRange(slot);
  } else {
    const directory = host.records.pathOf(id);
    for (const claim of listUidClaims()) if (claim.owner === directory) releaseUidRange(claim.slot);
  }
  host.records.remove(id);
}

export function diskPathOf(host: Pick<HostParts, "pool">, id: SandboxId): string {
  return `${host.pool.directory}/${id}`;
}

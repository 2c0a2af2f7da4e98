/**
 * Who may have a sandbox that is kept ready: of all processes, the one that renames its token. Its owner does so to hand it
 * out; others to end it, when they need its room or what it stands on.
 */
import { existsSync, readFileSync, renameSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { SandboxId } from "@holdfast/protocol";
import type { HostParts } from "./host-parts.js";
import type { SandboxRecords } from "./records.js";

export const WARM_TOKEN = "warm";
const TAKEN = "warm-taken";
const LOOK_MS = 10;
/** How long its owner may take to clear away what is left of one that was ended. */
const PATIENCE_MS = 5000;

function rename(records: SandboxRecords, id: SandboxId, from: string, to: string): boolean {
  try {
    renameSync(records.pathOf(id, from), records.pathOf(id, to));
    return true;
  } catch {
    // Somebody else was quicker, or it is gone.
    return false;
  }
}

export const takeToken = (records: SandboxRecords, id: SandboxId): boolean => rename(records, id, WARM_TOKEN, TAKEN);
export const putTokenBack = (records: SandboxRecords, id: SandboxId): boolean => rename(records, id, TAKEN, WARM_TOKEN);

/** Whether it is ready and nobody's: whoever needs what it stands on may have it ended. */
export const isSpare = (records: SandboxRecords, id: SandboxId): boolean => existsSync(records.pathOf(id, WARM_TOKEN));

/** The guest. What it was started by is its owner's child, and lives to reap it. */
function isFirstInside(pid: number): boolean {
  try {
    return /^NSpid:(?:\s+\d+)+\s+1$/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

/** Ends those of other processes; their owners find them dead and clear them away. Resolves to how many there were. */
export async function endSpares(host: HostParts, ids: readonly SandboxId[]): Promise<number> {
  const { records, cgroups } = host;
  const ended = ids.filter((id) => {
    const record = records.read(id);
    if (record?.warm !== true || !records.hasLivingOwner(id) || !takeToken(records, id)) return false;
    const cgroup = cgroups.openAt(record.cgroupPaths as Record<string, string>);
    for (const pid of cgroup?.guestProcesses() ?? []) if (isFirstInside(pid)) process.kill(pid, "SIGKILL");
    return true;
  });
  const deadline = performance.now() + PATIENCE_MS;
  while (ended.some((id) => records.exists(id)) && performance.now() < deadline) await sleep(LOOK_MS);
  return ended.length;
}

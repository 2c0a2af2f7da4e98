/** Takes over a sandbox that a process which is gone left running. */
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import { GuestConnection } from "../guest/connection.js";
import { bootId } from "../host/processes.js";
import { listUidClaims } from "../host/uid-ranges.js";
import { freeCommandId, listCommands } from "./command-list.js";
import { dismantle } from "./dismantle.js";
import { Endings } from "./endings.js";
import type { HostParts } from "./host-parts.js";
import { BubblewrapSandbox } from "./sandbox.js";
import { endForeignStandstill } from "./standstill.js";
import { finishStop, isStopped } from "./stopped.js";

/** A guest on a host that is out of breath takes its time; one that never answers is taken apart, files and all. */
const ADOPT_TIMEOUT_MS = 20_000;

/** Undefined if it cannot be taken over; then it is for the sweep. */
export async function adoptSandbox(host: HostParts, id: SandboxId): Promise<BubblewrapSandbox | undefined> {
  const { records, cgroups, log, us } = host;
  const record = records.read(id);
  if (isStopped(record)) {
    await finishStopOrSay(host, id);
    return undefined;
  }
  if (record === undefined || record.bootId !== bootId() || record.discarded === true) return undefined;
  if (record.spec.whenOwnerDies === "end" || record.warm === true) return undefined;
  const cgroup = cgroups.openAt(record.cgroupPaths as Record<string, string>);
  if (cgroup === undefined || cgroup.isEmpty()) return undefined;
  const taken = records.takeOver(id, us);
  if (taken === undefined) return undefined;
  if (JSON.stringify(records.read(id)) !== JSON.stringify(record)) {
    // It was adopted, stopped, perhaps booted since we looked: whoever did so knows better what to do with it.
    records.disown(id, us, taken);
    return undefined;
  }
  const uid = listUidClaims().find((claim) => claim.slot === record.uidSlot);
  try {
    // A frozen guest cannot say hello; it is thawed for as long as that takes.
    const wasFrozen = await endForeignStandstill(records, id, cgroup);
    if (wasFrozen) await cgroup.thaw();
    const connection = await GuestConnection.open(records.socketPath(id), { timeoutMs: ADOPT_TIMEOUT_MS });
    const endings = new Endings(records.pathOf(id, "endings"));
    const nextCommandId = Math.max(record.commandIdsFrom ?? 1, freeCommandId(await listCommands(connection), endings));
    if (wasFrozen) await cgroup.freeze();
    log.info({ sandbox: id }, "adopted a sandbox");
    const sandbox = new BubblewrapSandbox(host, {
      record,
      cgroup,
      connection,
      uids: { base: uid?.base ?? 0 },
      nextCommandId,
    });
    sandbox.takeOverShare();
    return sandbox;
  } catch (error) {
    log.warn(
      { sandbox: id, error: HoldfastError.from(error).message },
      "a sandbox could not be adopted; sweeping it away",
    );
    await dismantle(host, id, { cgroup });
    return undefined;
  }
}

async function finishStopOrSay(host: HostParts, id: SandboxId): Promise<void> {
  try {
    await finishStop(host, id);
  } catch (error) {
    host.log.warn(
      { left: "sandbox", sandbox: id, error: HoldfastError.from(error).message },
      "something is left of a stopped sandbox's processes",
    );
  }
}

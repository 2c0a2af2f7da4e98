/** Removes what processes that are gone have left: sandboxes, promises, claims, layers, volumes. */
import { existsSync } from "node:fs";
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { SweepReport } from "../engine.js";
import { bootId } from "../host/processes.js";
import { removeStaleUidClaims } from "../host/uid-ranges.js";
import { removeOldSkeletons } from "../images/old-skeletons.js";
import { dismantle } from "./dismantle.js";
import type { HostParts } from "./host-parts.js";
import type { SandboxRecord } from "./records.js";
import { finishStop, isStopped } from "./stopped.js";

function whySwept(record: SandboxRecord | undefined): string {
  if (record === undefined) return "its creation was cut off";
  if (record.discarded === true) return "its removal was cut off";
  if (record.warm === true) return "it was kept ready by a process that is gone";
  return record.bootId === bootId() ? "the process that answered for it is gone" : "the host has been restarted since";
}

export async function sweepHost(
  host: HostParts,
  options: { readonly which: "all" | "abandoned"; readonly isOurs: (id: SandboxId) => boolean },
): Promise<SweepReport[]> {
  const { records, cgroups } = host;
  const reports: SweepReport[] = [];
  records.removeScraps();
  removeStaleReservations(host);
  const ids = new Set([...records.list(), ...cgroups.list().filter((id) => records.exists(id))]);
  for (const id of ids) {
    if (options.isOurs(id) || records.hasLivingOwner(id)) continue;
    const processes = cgroups.open(id)?.processes().length ?? 0;
    const why = await sweepOne(host, id, options.which);
    if (why !== undefined) reports.push({ id, processes, why });
  }
  removeStaleUidClaims();
  await host.layers.sweep((name, error) => {
    host.log.warn(
      { left: "layer", layer: name, error: HoldfastError.from(error).message },
      "what is left of a layer could not be removed",
    );
  });
  await host.volumes.sweep((name, error) => {
    host.log.warn(
      { left: "volume", volume: name, error: HoldfastError.from(error).message },
      "what is left of a volume could not be removed",
    );
  });
  removeOldSkeletons(host.imagesDirectory, {
    current: () => host.skeleton(),
    inUse: records.list().flatMap((id) => records.read(id) ?? []),
  });
  return reports;
}

/** Of processes that were killed: what they had begun is gone, or has come to rest. */
export function removeStaleReservations({ governor, records }: HostParts): void {
  governor.removeStale((record, id) => {
    if (!existsSync(record)) return false;
    // Another state directory's are not ours to judge.
    if (record !== records.pathOf(id as SandboxId)) return true;
    return !(isStopped(records.read(id as SandboxId)) && records.isAtRest(id as SandboxId));
  });
}

/** Why it was swept away; undefined if it was not. */
async function sweepOne(host: HostParts, id: SandboxId, which: "all" | "abandoned"): Promise<string | undefined> {
  const { records, log, us } = host;
  const isKept = () => {
    const record = records.read(id);
    if (isStopped(record)) return true;
    return (
      which === "abandoned" &&
      record?.spec.whenOwnerDies === "keep" &&
      record.bootId === bootId() &&
      record.discarded !== true &&
      record.warm !== true
    );
  };
  try {
    if (isStopped(records.read(id))) await finishStop(host, id);
    // It may have ended by itself since the list was made.
    if (isKept() || !records.exists(id)) return undefined;
    // Whoever adopts or boots it meanwhile is quicker, or we are.
    const taken = records.takeOver(id, us);
    if (taken === undefined && records.hasOwner(id)) return undefined;
    if (isKept()) {
      records.disown(id, us, { remains: taken?.remains ?? true });
      return undefined;
    }
    const why = whySwept(records.read(id));
    await dismantle(host, id);
    log.info({ sandbox: id, why }, "swept a sandbox away");
    return why;
  } catch (error) {
    records.disown(id, us, { remains: true });
    log.warn(
      { left: "sandbox", sandbox: id, error: HoldfastError.from(error).message },
      "a sandbox could not be swept away",
    );
    return undefined;
  }
}

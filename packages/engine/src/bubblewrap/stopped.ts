/** Sandboxes without processes: their files and their record, which nobody answers for until they are booted or discarded. */
import { existsSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import { bootId } from "../host/processes.js";
import { type BroughtUp, bringUp } from "./bring-up.js";
import { dismantle, takeDown } from "./dismantle.js";
import { Endings } from "./endings.js";
import type { HostParts } from "./host-parts.js";
import { layersBelow } from "./layer-claims.js";
import { requirePlainTargets } from "./mount-targets.js";
import type { SandboxRecord, SandboxRecords } from "./records.js";
import { BubblewrapSandbox, COMMAND_ID_STEP } from "./sandbox.js";
import { limitsAtRest } from "./sandbox-budget.js";
import { validateMounts } from "./spec.js";

export type StoppedRecord = SandboxRecord & { readonly stopped: NonNullable<SandboxRecord["stopped"]> };

export const isStopped = (record: SandboxRecord | undefined): record is StoppedRecord =>
  hasStopped(record) && record.discarded !== true;

/** Also one of which part may be gone already. */
const hasStopped = (record: SandboxRecord | undefined): record is StoppedRecord => record?.stopped !== undefined;

export function listStopped(host: HostParts): SandboxId[] {
  const { records } = host;
  return records.list().filter((id) => {
    const record = records.read(id);
    return isStopped(record) && !records.hasLivingOwner(id) && !hasBecomeLayer(host, record);
  });
}

/** Whether anything may be running, of whatever process: all but what is known to be at rest or of an earlier boot. */
export function hasRunning(records: SandboxRecords): boolean {
  return records.list().some((id) => {
    const record = records.read(id);
    if (record === undefined) return records.exists(id);
    return record.bootId === bootId() && !(isStopped(record) && records.isAtRest(id));
  });
}

/** Whether a killed process has made a layer of its files and only the record is left. */
export function hasBecomeLayer(host: Pick<HostParts, "pool">, record: SandboxRecord): boolean {
  const { becomes, disk } = record;
  // In a pool that is not open nothing is gone because it is not seen.
  return becomes !== undefined && dirname(disk.path) === host.pool.directory && !existsSync(disk.path);
}

/** Makes this process the owner of a stopped sandbox, and finishes what a killed one left of its end. */
export async function take(host: HostParts, id: SandboxId, accept = isStopped): Promise<StoppedRecord> {
  const { records, us } = host;
  if (!records.exists(id)) {
    throw new HoldfastError("sandbox_not_found", `there is no sandbox with id ${id}`);
  }
  if (!accept(records.read(id))) throw notStopped(id);
  const taken = records.takeOver(id, us);
  if (taken === undefined) {
    throw new HoldfastError("sandbox_busy", `sandbox ${id} is just being stopped, started or removed`, {
      hint: "Try again in a moment.",
    });
  }
  // It may have been booted and more between the look and the take-over.
  const record = records.read(id);
  if (!accept(record)) {
    records.disown(id, us, taken);
    throw notStopped(id);
  }
  try {
    if (hasBecomeLayer(host, record)) {
      await dismantle(host, id);
      throw new HoldfastError("sandbox_not_found", `sandbox ${id} has become layer ${record.becomes}`);
    }
    if (taken.remains) await takeDown(host, id);
  } catch (error) {
    records.disown(id, us, { remains: true });
    throw error;
  }
  return record;
}

function notStopped(id: SandboxId): HoldfastError {
  return new HoldfastError("sandbox_exists", `sandbox ${id} is not stopped`, { hint: "Stop it first." });
}

export async function bootStopped(
  host: HostParts,
  id: SandboxId,
  options: { readonly signal?: AbortSignal | undefined } = {},
): Promise<BubblewrapSandbox> {
  const { records, us } = host;
  const { signal } = options;
  if (signal?.aborted) throw new HoldfastError("canceled", "the start of the sandbox was canceled");
  const record = await take(host, id);
  let up: BroughtUp | undefined;
  try {
    requireDisk(host, record);
    validateMounts(record.spec.mounts);
    await host.layers.requireAll(layersBelow(record.spec));
    requirePlainTargets(host, record.spec, [join(record.disk.path, "upper")]);
    // What it says shall be about this start.
    rmSync(records.pathOf(id, "launch.log"), { force: true });
    const disk = { path: record.disk.path, exists: true };
    up = await bringUp(host, id, { spec: record.spec, limits: record.limits, disk, signal });
    const nextCommandId = Math.max(
      record.commandIdsBelow ?? 1,
      new Endings(records.pathOf(id, "endings")).highestId() + 1,
    );
    const { stopped: _, becomes: __, ...kept } = record;
    const booted: SandboxRecord = {
      ...kept,
      bootId: bootId(),
      bootedAt: new Date().toISOString(),
      uidSlot: up.uids.slot,
      cgroupPaths: up.cgroup.paths,
      disk: { path: record.disk.path, quotaId: up.quotaId },
      commandIdsFrom: nextCommandId,
      commandIdsBelow: nextCommandId + COMMAND_ID_STEP,
      skeleton: up.skeleton,
    };
    // Until it is written, a process that is killed here leaves a stopped sandbox with remains.
    records.write(booted);
    return new BubblewrapSandbox(host, { record: booted, ...up, nextCommandId });
  } catch (error) {
    const parts = { cgroup: up?.cgroup, monitor: up?.monitor, uidSlot: up?.uids.slot };
    const remains = await takeDown(host, id, parts).then(
      () => false,
      () => true,
    );
    records.disown(id, us, { remains });
    throw signal?.aborted
      ? new HoldfastError("canceled", "the start of the sandbox was canceled", { cause: error })
      : error;
  }
}

export function requireDisk(host: HostParts, { id, disk }: SandboxRecord): void {
  if (dirname(disk.path) !== host.pool.directory) {
    throw new HoldfastError("host_unsupported", `the files of sandbox ${id} are in another pool, at ${disk.path}`, {
      hint: `This one is of kind ${host.pool.kind}; use the kind with which the sandbox was made (--pool).`,
    });
  }
  if (existsSync(disk.path)) return;
  throw new HoldfastError("engine_fault", `the files of sandbox ${id} are gone: there is no ${disk.path}`, {
    hint: "Discard it.",
  });
}

export async function discardStopped(host: HostParts, id: SandboxId): Promise<void> {
  const record = await take(host, id, hasStopped);
  try {
    // First, so that nobody boots what is left of it if we are killed on the way.
    host.records.write({ ...record, discarded: true });
    await dismantle(host, id, { diskPath: record.disk.path });
  } catch (error) {
    host.records.disown(id, host.us, { remains: true });
    throw error;
  }
}

/** Finishes the stop of a sandbox whose owner was killed on the way. */
export async function finishStop(host: HostParts, id: SandboxId): Promise<void> {
  if (host.records.isAtRest(id)) return;
  try {
    await take(host, id);
  } catch (error) {
    // It has become a layer, and nothing is left of it now.
    if (!host.records.exists(id)) return;
    throw error;
  }
  host.records.disown(id, host.us);
}

/** A sandbox that was to be kept, of an earlier boot of the host: its processes are gone, its files need not be. */
export function salvage(host: HostParts, id: SandboxId): boolean {
  const { records, us } = host;
  const lost = (record: SandboxRecord | undefined): record is SandboxRecord =>
    record !== undefined &&
    record.bootId !== bootId() &&
    record.stopped === undefined &&
    record.spec.whenOwnerDies === "keep" &&
    existsSync(record.disk.path);
  if (!lost(records.read(id)) || records.takeOver(id, us) === undefined) return false;
  const record = records.read(id);
  const found = lost(record);
  try {
    if (found) {
      const limits = limitsAtRest(record.limits, record.startMemoryBytes ?? record.spec.limits.memoryBytes);
      records.write({ ...record, limits, stopped: { by: "the restart of the host", at: new Date().toISOString() } });
      // What was promised to it went with the host; at rest it takes nothing.
      host.governor.release(id);
    }
  } finally {
    records.disown(id, us, { remains: true });
  }
  return found;
}

/** Makes a sandbox, or leaves nothing behind. */
import { formatBytes, HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { SandboxSpec } from "../engine.js";
import { bootId } from "../host/processes.js";
import type { DiskPlan } from "../storage/pool.js";
import { type BroughtUp, bringUp } from "./bring-up.js";
import { diskPathOf, dismantle } from "./dismantle.js";
import type { HostParts } from "./host-parts.js";
import { claimFiles, layersToMakeOf } from "./layer-claims.js";
import { mountClaimFiles } from "./mount-claims.js";
import { requirePlainTargets } from "./mount-targets.js";
import type { SandboxRecord } from "./records.js";
import { BubblewrapSandbox, COMMAND_ID_STEP } from "./sandbox.js";

/** Nothing that is larger than its limit is made: the sandbox could not write a byte. */
async function planDisk(
  { pool, layers }: HostParts,
  { disk, limits, makesLayer }: SandboxSpec,
  { path, signal }: { readonly path: string; readonly signal: AbortSignal | undefined },
): Promise<DiskPlan> {
  if (disk === undefined) return makesLayer ? pool.diskForLayer(path) : { path, exists: false };
  const neededBytes = await layers.sizeBytes(disk.from);
  if (neededBytes > limits.diskBytes) {
    throw new HoldfastError(
      "invalid_argument",
      `limits.diskBytes: expected at least ${neededBytes} for the files it starts with, got ${limits.diskBytes}`,
      {
        hint: `They take ${formatBytes(neededBytes)}; ask for more disk than that.`,
        details: { field: "limits.diskBytes", neededBytes },
      },
    );
  }
  return pool.diskFromLayer(layers.diskOf(disk.from), path, { signal });
}

export interface PreparedSandbox extends BroughtUp {
  readonly record: SandboxRecord;
}

export async function createSandbox(
  host: HostParts,
  id: SandboxId,
  spec: SandboxSpec,
  options: { readonly signal?: AbortSignal | undefined } = {},
): Promise<BubblewrapSandbox> {
  const prepared = await prepareSandbox(host, id, spec, options);
  try {
    return new BubblewrapSandbox(host, prepared);
  } catch (error) {
    const { cgroup, monitor, uids, record } = prepared;
    await dismantle(host, id, { cgroup, monitor, uidSlot: uids.slot, diskPath: record.disk.path });
    throw error;
  }
}

/** All of a sandbox but somebody to use it. `files` are in its directory from the moment there is one. */
export async function prepareSandbox(
  host: HostParts,
  id: SandboxId,
  spec: SandboxSpec,
  options: {
    readonly signal?: AbortSignal | undefined;
    readonly warm?: true;
    readonly files?: Readonly<Record<string, string>>;
  } = {},
): Promise<PreparedSandbox> {
  const { signal } = options;
  if (signal?.aborted) throw new HoldfastError("canceled", "the creation of the sandbox was canceled");
  const diskPath = diskPathOf(host, id);
  // Before anything is made: it may be too long.
  host.records.socketPath(id);
  host.records.claim(id, host.us, { ...claimFiles(spec), ...mountClaimFiles(spec), ...options.files });
  let up: BroughtUp | undefined;
  try {
    await host.layers.requireAll(layersToMakeOf(spec));
    await host.volumes.requireAll(spec.mounts);
    requirePlainTargets(host, spec, spec.disk === undefined ? [] : [host.layers.path(spec.disk.from)]);
    const disk = await planDisk(host, spec, { path: diskPath, signal });
    up = await bringUp(host, id, { spec, limits: spec.limits, disk, signal, isWarm: options.warm ?? false });
    const record: SandboxRecord = {
      version: 1,
      id,
      bootId: bootId(),
      createdAt: new Date().toISOString(),
      spec,
      limits: spec.limits,
      uidSlot: up.uids.slot,
      cgroupPaths: up.cgroup.paths,
      disk: { path: diskPath, quotaId: up.quotaId },
      commandIdsBelow: COMMAND_ID_STEP,
      skeleton: up.skeleton,
      ...(options.warm === undefined ? {} : { warm: options.warm }),
    };
    // Until it is written there is nothing to adopt, and a sweep finds the parts by the id.
    host.records.write(record);
    return { record, ...up };
  } catch (error) {
    await dismantle(host, id, { cgroup: up?.cgroup, monitor: up?.monitor, uidSlot: up?.uids.slot, diskPath });
    throw signal?.aborted
      ? new HoldfastError("canceled", "the creation of the sandbox was canceled", { cause: error })
      : error;
  }
}

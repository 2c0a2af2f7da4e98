/** Makes a sandbox, or leaves nothing behind. */
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { SandboxSpec } from "../engine.js";
import { bootId } from "../host/processes.js";
import { type BroughtUp, bringUp } from "./bring-up.js";
import { diskPathOf, dismantle } from "./dismantle.js";
import type { HostParts } from "./host-parts.js";
import type { SandboxRecord } from "./records.js";
import { BubblewrapSandbox, COMMAND_ID_STEP } from "./sandbox.js";

export async function createSandbox(
  host: HostParts,
  id: SandboxId,
  spec: SandboxSpec,
  options: { readonly signal?: AbortSignal | undefined } = {},
): Promise<BubblewrapSandbox> {
  const { signal } = options;
  if (signal?.aborted) throw new HoldfastError("canceled", "the creation of the sandbox was canceled");
  const diskPath = diskPathOf(host, id);
  // Before anything is made: it may be too long.
  host.records.socketPath(id);
  host.records.claim(id, host.us);
  let up: BroughtUp | undefined;
  try {
    up = await bringUp(host, id, { spec, limits: spec.limits, disk: { path: diskPath, exists: false }, signal });
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
    };
    // Until it is written there is nothing to adopt, and a sweep finds the parts by the id.
    host.records.write(record);
    return new BubblewrapSandbox(host, { record, ...up });
  } catch (error) {
    await dismantle(host, id, { cgroup: up?.cgroup, monitor: up?.monitor, uidSlot: up?.uids.slot, diskPath });
    throw signal?.aborted
      ? new HoldfastError("canceled", "the creation of the sandbox was canceled", { cause: error })
      : error;
  }
}

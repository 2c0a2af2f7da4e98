/** Keeps what a running sandbox has written as a layer, as of one moment. */
import { HoldfastError } from "@holdfast/protocol";
import type { LayerId, SnapshotReport } from "../layers.js";
import type { Disk } from "../storage/pool.js";
import type { HostParts } from "./host-parts.js";
import type { SandboxRest } from "./sandbox-rest.js";

export function takeSnapshot(
  host: Pick<HostParts, "pool" | "layers" | "log">,
  id: LayerId,
  sandbox: {
    readonly disk: Disk;
    readonly rest: SandboxRest;
    /** Throws if it has ended: what is copied while it is taken apart is not what it was at any moment. */
    readonly requireRunning: () => void;
  },
): Promise<SnapshotReport> {
  const { pool, layers, log } = host;
  const { disk, rest, requireRunning } = sandbox;
  return layers.track(async () => {
    const path = layers.reserve(id);
    try {
      // What it has written so far reaches the disk while it runs on; it stands still only for the rest.
      await pool.settle(disk);
      requireRunning();
      const { result, stoodStillMs } = await rest.during(() => pool.cloneDisk(disk.path, path));
      requireRunning();
      const sizeBytes = await layers.commit(id, path, { isClone: true });
      return { id, method: pool.cloning, sizeBytes, frozenMs: stoodStillMs, syncMs: result.syncMs };
    } catch (error) {
      await pool.remove(path).catch((reason: unknown) => {
        log.warn(
          { left: "layer", layer: id, error: HoldfastError.from(reason).message },
          "a snapshot that failed is left",
        );
      });
      throw error;
    }
  });
}

/** Every probe, in the order in which the parts stand on each other; the last one tries it all. */
import { DEFAULT_STATE_DIRECTORY } from "../bubblewrap/open-host.js";
import { POOL_KINDS, type PoolKind } from "../storage/pool.js";
import { inspectBudgets } from "./budgets.js";
import { inspectIdMappedMounts } from "./id-mapped-mounts.js";
import { inspectIsolation } from "./isolation.js";
import { inspectPlatform } from "./platform.js";
import { inspectPrograms } from "./programs.js";
import { inspectPromises } from "./promises.js";
import { inspectResources } from "./resources.js";
import { type DoctorReport, reportOf } from "./row.js";
import { inspectStorage } from "./storage.js";
import { nearestDirectory, tryEgress, tryRealSandbox } from "./trial.js";

export interface InspectHostOptions {
  readonly stateDirectory?: string;
  readonly pool?: PoolKind;
}

/** As the engine itself would choose; what it would refuse is left to the trial to report. */
function poolInForce(chosen: PoolKind | undefined): PoolKind {
  return chosen ?? POOL_KINDS.find((kind) => kind === process.env.HOLDFAST_POOL) ?? "btrfs";
}

export async function probeHost(options: InspectHostOptions = {}): Promise<DoctorReport> {
  const platform = inspectPlatform();
  // Nothing below exists elsewhere.
  if (process.platform !== "linux") return reportOf(platform);
  const stateDirectory = options.stateDirectory ?? process.env.HOLDFAST_STATE_DIR ?? DEFAULT_STATE_DIRECTORY;
  const place = nearestDirectory(stateDirectory);
  const pool = poolInForce(options.pool);
  return reportOf([
    ...platform,
    ...(await inspectPrograms()),
    ...inspectIsolation(),
    ...inspectBudgets(),
    inspectIdMappedMounts(place),
    ...(await inspectStorage(pool)),
    ...inspectResources(place),
    ...inspectPromises({ stateDirectory, pool }),
    await tryRealSandbox({ stateDirectory, pool }),
    await tryEgress({ stateDirectory, pool }),
  ]);
}

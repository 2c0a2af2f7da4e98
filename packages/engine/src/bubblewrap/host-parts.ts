/** What all sandboxes of one engine share: the host's side of things. */
import type { CgroupHost, CgroupWatch, OomLog } from "../cgroups/index.js";
import type { Governor } from "../governor/governor.js";
import type { Launcher } from "../host/launcher.js";
import type { Log } from "../host/log.js";
import type { ProcessIdentity } from "../host/processes.js";
import type { LayerStore } from "../storage/layer-store.js";
import type { Pool } from "../storage/pool.js";
import type { VolumeStore } from "../storage/volume-store.js";
import type { SandboxRecords } from "./records.js";

export interface HostParts {
  readonly cgroups: CgroupHost;
  readonly oomLog: OomLog;
  readonly governor: Governor;
  readonly watch: CgroupWatch;
  /** How long one that is held at its memory limit waits for room on the host before it is killed. */
  readonly holdMs: number;
  readonly launcher: Launcher;
  readonly bwrapPath: string;
  readonly pool: Pool;
  readonly layers: LayerStore;
  readonly volumes: VolumeStore;
  readonly records: SandboxRecords;
  readonly imagesDirectory: string;
  /** Where the generated layers that every sandbox stands on are, up to date with the host. */
  skeleton(): string;
  readonly us: ProcessIdentity;
  readonly log: Log;
}

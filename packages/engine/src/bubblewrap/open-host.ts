/** Opens what all sandboxes of an engine share, and closes it again. */
import { chmodSync, mkdirSync, rmdirSync } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { CgroupWatch, createOomLog, detectCgroups } from "../cgroups/index.js";
import { Governor } from "../governor/governor.js";
import { type BudgetSettings, readHostBudget } from "../governor/host-budget.js";
import { budgetDirectory } from "../governor/promise-files.js";
import { ReservationFiles } from "../governor/reservation-files.js";
import type { Waited } from "../governor/types.js";
import { findProgram } from "../host/find-program.js";
import { Launcher } from "../host/launcher.js";
import type { Log } from "../host/log.js";
import { ourIdentity } from "../host/processes.js";
import type { OurPrograms } from "../images/above.js";
import { prepareSkeleton } from "../images/host-image.js";
import { openBtrfsPool } from "../storage/btrfs-pool.js";
import { openDirPool } from "../storage/dir-pool.js";
import { LayerStore } from "../storage/layer-store.js";
import { POOL_KINDS, type PoolKind } from "../storage/pool.js";
import { VolumeStore } from "../storage/volume-store.js";
import type { WarmSettings } from "../warm.js";
import type { HostParts } from "./host-parts.js";
import { LayerClaims } from "./layer-claims.js";
import { usersOfMount } from "./mount-claims.js";
import { SandboxRecords } from "./records.js";
import { hasRunning } from "./stopped.js";

export const DEFAULT_STATE_DIRECTORY = "/var/lib/holdfast";
const DEFAULT_HOLD_MS = 30_000;
/** How long a skeleton counts as up to date: looking takes half a millisecond, and hosts are not upgraded that often. */
const SKELETON_FRESH_MS = 5000;

export interface BubblewrapEngineOptions {
  readonly stateDirectory?: string;
  readonly pool?: PoolKind;
  readonly log?: Log;
  /** What of the host is kept back, and how many times over it is promised. */
  readonly budget?: BudgetSettings;
  /** How long a sandbox that is held at its memory limit waits for room on the host before the kernel kills in it. */
  readonly holdMs?: number;
  /** Told of everybody who has waited for room on the host. */
  readonly onWaited?: (waited: Waited) => void;
  /** How many sandboxes are kept ready; none if absent. */
  readonly warm?: WarmSettings;
}

const silentLog: Log = { info: () => {}, warn: () => {} };

function skeletonSource(imagesDirectory: string, programs: OurPrograms): () => string {
  let path: string | undefined;
  let lookedAt = 0;
  return () => {
    if (path === undefined || Date.now() - lookedAt > SKELETON_FRESH_MS) {
      path = prepareSkeleton({ imagesDirectory, programs });
      lookedAt = Date.now();
    }
    return path;
  };
}

/** Checks that the host can keep every promise, and says which it cannot. Never a weaker sandbox in silence. */
export async function openHost(options: BubblewrapEngineOptions, usedDiskBytes: () => number): Promise<HostParts> {
  if (process.platform !== "linux") throw new HoldfastError("host_unsupported", "Holdfast runs on Linux only");
  if (process.getuid?.() !== 0) {
    throw new HoldfastError(
      "host_unsupported",
      "Holdfast needs root on the host: it makes cgroups, mounts and user namespaces",
      {
        hint: "Run it with sudo. Nothing inside a sandbox is root outside.",
      },
    );
  }
  const stateDirectory = options.stateDirectory ?? process.env.HOLDFAST_STATE_DIR ?? DEFAULT_STATE_DIRECTORY;
  if (!isAbsolute(stateDirectory)) throw invalidArgument("stateDirectory", stateDirectory, "an absolute path");
  const poolKind = options.pool ?? process.env.HOLDFAST_POOL ?? "btrfs";
  if (!(POOL_KINDS as readonly string[]).includes(poolKind))
    throw invalidArgument("pool", poolKind, `one of ${POOL_KINDS.join(", ")}`);
  const bwrapPath = findProgram("bwrap");
  if (bwrapPath === undefined) {
    throw new HoldfastError("host_unsupported", "bubblewrap (bwrap) is not installed, and nothing runs without it", {
      hint: "apt-get install bubblewrap",
    });
  }
  const launcher = new Launcher();
  const cgroups = detectCgroups();
  mkdirSync(stateDirectory, { recursive: true, mode: 0o700 });
  const imagesDirectory = join(stateDirectory, "images");
  // Disks and images hold files with ids that mean something on the host: set-id programs among them. Nobody else
  // may so much as look in.
  for (const name of ["images", "sandboxes", "disks", "pool"]) {
    mkdirSync(join(stateDirectory, name), { recursive: true, mode: 0o700 });
    if (name !== "pool") chmodSync(join(stateDirectory, name), 0o700);
  }
  const records = new SandboxRecords(stateDirectory);
  const pool =
    poolKind === "dir"
      ? openDirPool({ directory: join(stateDirectory, "disks"), launcher })
      : await openBtrfsPool({ stateDirectory, launcher, isInUse: () => hasRunning(records) });
  const us = ourIdentity();
  const claims = new LayerClaims(records);
  const log = options.log ?? silentLog;
  return {
    cgroups,
    oomLog: createOomLog(),
    governor: new Governor({
      files: new ReservationFiles(budgetDirectory(cgroups.baseName), us),
      readBudget: () => readHostBudget({ cgroups, pool }, options.budget ?? {}, usedDiskBytes()),
      onWaited: options.onWaited,
    }),
    watch: new CgroupWatch(launcher.path, log),
    holdMs: options.holdMs ?? DEFAULT_HOLD_MS,
    launcher,
    bwrapPath,
    pool,
    layers: new LayerStore({ pool, us, usersOf: (layer) => claims.usersOf(layer) }),
    volumes: new VolumeStore({ pool, launcher, us, usersOf: (path) => usersOfMount(records, path) }),
    records,
    imagesDirectory,
    skeleton: skeletonSource(imagesDirectory, { sudo: launcher.guestPath, tar: launcher.tarPath }),
    us,
    log,
  };
}

/** Nothing of ours may be using it any more. */
export async function closeHost(host: HostParts): Promise<void> {
  await Promise.all([host.layers.idle(), host.volumes.idle()]);
  await host.pool.close();
  host.cgroups.removeIfEmptyParents();
  host.oomLog.close();
  host.watch.close();
  // Gone with the last sandbox of the host; busy if there are others.
  const budget = budgetDirectory(host.cgroups.baseName);
  for (const directory of [budget, dirname(budget), "/run/holdfast/uid-ranges", "/run/holdfast"]) {
    try {
      rmdirSync(directory);
    } catch {
      // Somebody else's claims are in it, or it was never made.
    }
  }
}

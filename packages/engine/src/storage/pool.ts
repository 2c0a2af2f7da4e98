/**
 * Where sandboxes' disks live. `btrfs` enforces each disk's limit in the kernel: the sandbox gets EDQUOT. `dir` works on any
 * file system, but its limit is watched, not enforced: a sandbox that is over it is ended, having been over it.
 */
export const POOL_KINDS = ["btrfs", "dir"] as const;
export type PoolKind = (typeof POOL_KINDS)[number];

/** One sandbox's disk: a directory with `upper`, `work` and `spill`, made by the launcher. */
export interface Disk {
  readonly path: string;
  /** The btrfs subvolume's number, which also names its quota group. */
  readonly quotaId: number | undefined;
}

/** What the launcher finds at a disk's path, or is to put there. */
export interface DiskPlan {
  readonly path: string;
  /** It is there, of a sandbox that was stopped or as a copy; else it is made. */
  readonly exists: boolean;
  /** The layer that a new one is cloned from; absent if it begins empty. */
  readonly from?: string | undefined;
}

export interface FinishedLayer {
  /** Exact once the layer has been given its name for good. `path` is where it lies then. */
  sizeBytes(path: string): Promise<number>;
}

export interface Pool {
  readonly kind: PoolKind;
  /** The directory that a new sandbox's disk is made in. */
  readonly directory: string;
  /** True if the kernel refuses writes above the limit; false if somebody has to watch. */
  readonly enforcesLimits: boolean;
  usedBytes(disk: Disk): Promise<number | null>;
  /** The same where it costs nothing to know, else null. */
  knownUsedBytes(disk: Disk): number | null;
  /** What all disks together may hold, and what they do. */
  capacity(): { readonly totalBytes: number; readonly usedBytes: number };
  /** Brings `usedBytes` up to date where the file system lags behind with what was freed. */
  settle(disk: Disk): Promise<void>;
  setLimit(disk: Disk, limitBytes: number): Promise<void>;
  remove(path: string): Promise<void>;
  /** How a disk is made of another, or of a layer. */
  readonly cloning: "clone" | "copy";
  /** As it is at this moment; whoever writes to it must stand still. */
  cloneDisk(from: string, to: string): Promise<{ readonly syncMs: number }>;
  /** A new disk that begins as a layer's copy: here if that takes time, else the launcher does it on the way. */
  diskFromLayer(layer: string, path: string, options: { readonly signal: AbortSignal | undefined }): Promise<DiskPlan>;
  /** A new disk that is to become a layer: see `finishLayer`. */
  diskForLayer(path: string): DiskPlan;
  makeLayer(path: string): Promise<void>;
  /**
   * Makes a layer of a disk or of a new layer: only what was written stays, without a limit, and lasting. `isClone`: it has
   * just been made by `cloneDisk`, to make disks of and not to stand on. Others get inode numbers that no other layer has,
   * which may need a copy: `fresh` is where it is made, and swept if we do not live to remove it.
   */
  finishLayer(path: string, options: { readonly isClone: boolean; readonly fresh: string }): Promise<FinishedLayer>;
  /** What a finished layer holds. */
  layerBytes(path: string): Promise<number>;
  /** Lets go; the last user of a pool that we mounted unmounts it, unless sandboxes run on. */
  close(): Promise<void>;
}

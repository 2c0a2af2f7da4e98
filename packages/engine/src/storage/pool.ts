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
  /** Lets go; the last user of a pool that we mounted unmounts it. */
  close(): Promise<void>;
}

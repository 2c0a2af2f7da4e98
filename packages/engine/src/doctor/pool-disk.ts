/** The disk that sandboxes share: the pool as it is or, where there is none yet, as it would be made. */
import { existsSync, statSync } from "node:fs";
import { HoldfastError } from "@holdfast/protocol";
import { btrfsPoolPaths, defaultPoolBytes, isMounted } from "../storage/btrfs-pool.js";
import { readCapacity } from "../storage/capacity.js";
import type { PoolKind } from "../storage/pool.js";
import { nearestDirectory } from "./trial.js";

/** The kernel counts a file's blocks in these, whatever the file system's are. */
const BLOCK_BYTES = 512;

export interface PoolDisk {
  readonly totalBytes: number;
  /** By images, sandboxes, volumes and whatever else lies there. */
  readonly usedBytes: number;
  /** Which file system that is. */
  readonly of: string;
}

export function readPoolDisk({ stateDirectory, pool }: { stateDirectory: string; pool: PoolKind }): PoolDisk {
  const place = nearestDirectory(stateDirectory);
  if (pool === "dir") return { ...readCapacity(place), of: `the file system of ${place} (pool dir)` };
  const { directory, file } = btrfsPoolPaths(stateDirectory);
  if (existsSync(directory) && isMounted(directory)) {
    return { ...readCapacity(directory, place), of: `the pool ${directory} (btrfs, in ${file})` };
  }
  const { usedBytes, totalBytes } = readCapacity(place);
  const freeBytes = totalBytes - usedBytes;
  if (existsSync(file)) {
    const { size, blocks } = statSync(file);
    const writtenBytes = Math.min(size, blocks * BLOCK_BYTES);
    const total = writtenBytes + Math.min(size - writtenBytes, freeBytes);
    return { totalBytes: total, usedBytes: writtenBytes, of: `the pool in ${file}, which is not mounted now` };
  }
  try {
    const size = Math.min(defaultPoolBytes(place), freeBytes);
    return { totalBytes: size, usedBytes: 0, of: `the pool (btrfs) that would be made in ${stateDirectory}` };
  } catch (error) {
    return { totalBytes: 0, usedBytes: 0, of: `no pool: ${HoldfastError.from(error).message}` };
  }
}

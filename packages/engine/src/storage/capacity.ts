import { statfsSync } from "node:fs";

/**
 * How much a directory's file system can hold. `growsIn` is where the file lies that the file system is made of, if that file
 * is sparse: then what is free there bounds it too.
 */
export function readCapacity(directory: string, growsIn = directory): { totalBytes: number; usedBytes: number } {
  const own = statfsSync(directory);
  const around = statfsSync(growsIn);
  const usedBytes = (own.blocks - own.bfree) * own.bsize;
  const freeBytes = Math.min(own.bavail * own.bsize, around.bavail * around.bsize);
  return { totalBytes: usedBytes + freeBytes, usedBytes };
}

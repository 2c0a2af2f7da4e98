import { statfsSync } from "node:fs";
import { HoldfastError } from "@holdfast/protocol";

/** File systems whose files lie in memory, by the kernel's numbers. */
const IN_MEMORY = new Map([
  [0x0102_1994, "tmpfs"],
  [0x8584_58f6, "ramfs"],
]);

/** Refuses with `no_space` and both numbers if the directory's file system has less than that to give. */
export function checkFreeSpace(directory: string, neededBytes: number, what: string): void {
  const { type, bavail, bsize } = statfsSync(directory);
  const freeBytes = bavail * bsize;
  if (freeBytes >= neededBytes) return;
  const inMemory = IN_MEMORY.get(type);
  const where = inMemory === undefined ? directory : `${directory}, a ${inMemory} (memory, not disk),`;
  throw new HoldfastError(
    "no_space",
    `${what} needs ${formatBytes(neededBytes)} and ${where} has ${formatBytes(freeBytes)} free`,
    {
      hint:
        inMemory === undefined
          ? "Free some space, or choose another directory for temporary files with --scratch or HOLDFAST_SCRATCH_DIR."
          : "Choose a directory on a disk for temporary files, with --scratch or HOLDFAST_SCRATCH_DIR.",
      details: { directory, neededBytes, freeBytes, ...(inMemory === undefined ? {} : { fileSystem: inMemory }) },
    },
  );
}

const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"] as const;

/** `4.2 GiB (4509715660 bytes)`: readable, and exact where two numbers are close. */
function formatBytes(bytes: number): string {
  const power = Math.min(UNITS.length - 1, bytes < 1024 ? 0 : Math.floor(Math.log2(bytes) / 10));
  return power === 0 ? `${bytes} bytes` : `${(bytes / 1024 ** power).toFixed(1)} ${UNITS[power]} (${bytes} bytes)`;
}

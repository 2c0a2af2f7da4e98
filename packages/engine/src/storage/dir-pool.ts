import { mkdirSync } from "node:fs";
import type { Launcher } from "../host/launcher.js";
import { readCapacity } from "./capacity.js";
import type { Pool } from "./pool.js";
import { removeSmallDisk } from "./remove-small-disk.js";

export function openDirPool(options: { readonly directory: string; readonly launcher: Launcher }): Pool {
  const { directory, launcher } = options;
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  return {
    kind: "dir",
    directory,
    enforcesLimits: false,
    usedBytes: (disk) => launcher.diskUsage(disk.path),
    knownUsedBytes: () => null,
    capacity: () => readCapacity(directory),
    settle: () => Promise.resolve(),
    // Whoever watches asks for the limit each time.
    setLimit: () => Promise.resolve(),
    remove: (path) => (removeSmallDisk(path) ? Promise.resolve() : launcher.removeDisk(path)),
    close: () => Promise.resolve(),
  };
}

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
    cloning: "copy",
    async cloneDisk(from, to) {
      // What is still in memory is copied from there: nothing has to reach the disk first.
      await launcher.copyDisk(from, to);
      return { syncMs: 0 };
    },
    async diskFromLayer(layer, path, { signal }) {
      await launcher.copyDisk(layer, path, { signal });
      return { path, exists: true };
    },
    diskForLayer: (path) => ({ path, exists: false }),
    makeLayer: (path) => launcher.makeLayer(path, "directory"),
    async finishLayer(path) {
      await launcher.finishLayer(path, "directory", { state: "written" });
      return { sizeBytes: (at) => launcher.diskUsage(at) };
    },
    layerBytes: (path) => launcher.diskUsage(path),
    close: () => Promise.resolve(),
  };
}

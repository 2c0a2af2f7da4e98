/** Makes our directory in a hierarchy and turns its controllers on, or says why that cannot be. */
import { accessSync, constants, mkdirSync } from "node:fs";
import { HoldfastError } from "@holdfast/protocol";
import type { Hierarchy } from "./hierarchies.js";
import { errnoOf, hasFile, readKernelFile, removeOne, writeKernelFile } from "./kernel-files.js";

const HINTS: Record<string, string> = {
  EROFS: "Mount the cgroup file system writable: in a container, run it privileged or with /sys/fs/cgroup mounted rw.",
  EACCES: "Run as root, or have the cgroup delegated to this user.",
  EPERM: "Run as root, or have the cgroup delegated to this user.",
  EBUSY:
    "A cgroup that holds processes cannot have limited children (cgroup v2). Run the server in a systemd unit with " +
    "Delegate=yes and DelegateSubgroup=server, or set HOLDFAST_CGROUP_PARENT to a cgroup without processes of its own " +
    "(/ is the root, which leaves the limits that now surround the server).",
  ENOENT: "Set HOLDFAST_CGROUP_PARENT to a cgroup that has the memory and pids controllers.",
};

const MAX_ATTEMPTS = 10;

function unsupported(what: string, reason: unknown): HoldfastError {
  const code = errnoOf(reason) ?? "";
  return new HoldfastError("host_unsupported", `${what}: ${code === "" ? String(reason) : code}`, {
    hint: HINTS[code],
    details: { errno: code },
    cause: reason,
  });
}

/** True when the directory is new. */
export function makeDirectory(directory: string): boolean {
  try {
    mkdirSync(directory, { mode: 0o755 });
    return true;
  } catch (reason) {
    if (errnoOf(reason) === "EEXIST") return false;
    throw reason;
  }
}

/** Turns controllers on for the children of a v2 cgroup. */
export function enableControllers(directory: string, controllers: readonly string[]): void {
  const file = `${directory}/cgroup.subtree_control`;
  const present = (readKernelFile(file) ?? "").trim().split(" ");
  const missing = controllers.filter((name) => !present.includes(name));
  if (missing.length > 0) writeKernelFile(file, missing.map((name) => `+${name}`).join(" "));
}

/** From the first directory that is ours to change down to our own. */
function directoriesOf(hierarchy: Hierarchy): string[] {
  const directories = [hierarchy.firstOurs];
  for (const name of hierarchy.base.slice(hierarchy.firstOurs.length + 1).split("/")) {
    directories.push(`${directories.at(-1) ?? ""}/${name}`);
  }
  return directories;
}

export interface Prepared {
  readonly hierarchy: Hierarchy;
  /** Directories that were not there before, topmost first. */
  readonly made: readonly string[];
}

/** Idempotent. What it made is gone again when it throws. */
export function prepareHierarchy(hierarchy: Hierarchy): Prepared {
  for (let attempt = 1; ; attempt++) {
    try {
      return prepareOnce(hierarchy);
    } catch (reason) {
      // Another process has found the directories empty, and removed them while we were about to use them.
      if (errnoOf(reason) === "ENOENT" && attempt < MAX_ATTEMPTS) continue;
      throw unsupported(`cannot limit sandboxes in the cgroup ${hierarchy.parent}`, reason);
    }
  }
}

function prepareOnce(hierarchy: Hierarchy): Prepared {
  const made: string[] = [];
  try {
    let controllers = hierarchy.controllers;
    for (const directory of directoriesOf(hierarchy)) {
      if (directory !== hierarchy.mountPoint && makeDirectory(directory)) made.push(directory);
      if (hierarchy.version === 2 && controllers.length > 0) controllers = enableAll(directory, controllers);
    }
    // It may have been there before, made by somebody with more rights or on a better day.
    accessSync(hierarchy.base, constants.W_OK);
    if (hierarchy.version === 1 && hierarchy.controllers.includes("memory")) requireHierarchicalMemory(hierarchy.base);
    return { hierarchy: { ...hierarchy, controllers }, made };
  } catch (reason) {
    for (const directory of made.reverse()) removeOne(directory);
    throw reason;
  }
}

/** The CPU controller may be refused (realtime processes keep it at the root): then CPU is what cannot be limited. */
function enableAll(directory: string, controllers: Hierarchy["controllers"]): Hierarchy["controllers"] {
  const required = controllers.filter((name) => name !== "cpu");
  enableControllers(directory, required);
  if (!controllers.includes("cpu")) return required;
  try {
    enableControllers(directory, ["cpu"]);
    return controllers;
  } catch {
    return required;
  }
}

/** Before Linux 5.11 a v1 memory limit did not have to hold for the cgroups below it. */
function requireHierarchicalMemory(base: string): void {
  if (hasFile(base, "memory.use_hierarchy") && readKernelFile(`${base}/memory.use_hierarchy`)?.trim() === "0") {
    writeKernelFile(`${base}/memory.use_hierarchy`, "1");
  }
}

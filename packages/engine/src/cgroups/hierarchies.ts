/** Which cgroup hierarchies this host has, and where in each of them our directory belongs. */
import { invalidArgument } from "@holdfast/protocol";
import { hasFile, readKernelFile, readNumber } from "./kernel-files.js";
import { type CgroupMount, cgroupPathUnderMount, type ProcCgroupLine, parseCpuMax } from "./parse.js";
import type { HierarchyName } from "./types.js";

export type LimitController = "memory" | "pids" | "cpu";

export interface Hierarchy {
  readonly name: HierarchyName;
  readonly version: 1 | 2;
  readonly mountPoint: string;
  readonly mountRoot: string;
  /** The directory that our own `holdfast` directory is made in. */
  readonly parent: string;
  readonly base: string;
  /** The first directory that we may change on the way down to `base`. */
  readonly firstOurs: string;
  /** What is limited here. */
  readonly controllers: readonly LimitController[];
  /** Whether pids.events counts in the cgroup that forks (v1, v2 before 6.11) and not where the limit is. */
  readonly countsForksLocally: boolean;
}

/** The directory of ours in each hierarchy; the sandboxes' are in it. */
export const BASE_NAME = "holdfast";

const PARENT_SEGMENT = /^[A-Za-z0-9_.@:\\-]+$/;

/** A path relative to the root of each hierarchy, as segments; `/` is the root itself. */
export function parseParent(text: string): string[] {
  const segments = text.split("/").filter((segment) => segment !== "");
  const wrong = segments.some((segment) => segment === "." || segment === ".." || !PARENT_SEGMENT.test(segment));
  if (wrong || text === "" || text.length > 512) {
    throw invalidArgument("HOLDFAST_CGROUP_PARENT", text, "a cgroup path such as machine.slice/sandboxes, or /");
  }
  return segments;
}

/** v1 mounts name their controllers. Of several, one that is writable and shows our own cgroup serves best. */
export function findMount(
  mounts: readonly CgroupMount[],
  own: readonly ProcCgroupLine[],
  controller: string | undefined,
): CgroupMount | undefined {
  const fitting = mounts.filter((mount) =>
    controller === undefined ? mount.version === 2 : mount.version === 1 && mount.superOptions.includes(controller),
  );
  const rank = (mount: CgroupMount) => (mount.readOnly ? 0 : 2) + (ownDirectory(mount, own) === undefined ? 0 : 1);
  return fitting.reduce<CgroupMount | undefined>(
    (best, mount) => (best === undefined || rank(mount) > rank(best) ? mount : best),
    undefined,
  );
}

function ownDirectory(mount: CgroupMount, own: readonly ProcCgroupLine[]): string | undefined {
  const line = own.find(({ hierarchyId, controllers }) =>
    mount.version === 2 ? hierarchyId === 0 : controllers.some((name) => mount.superOptions.includes(name)),
  );
  return line === undefined ? undefined : cgroupPathUnderMount(mount, line.path);
}

/**
 * On v2 a limit on processes does not count as one that surrounds us: systemd puts one on every login and every service,
 * whether or not anybody asked for it, and below it nothing could be limited at all.
 */
function hasFiniteLimit(directory: string, version: 1 | 2): boolean {
  const limits = version === 2 ? ["memory.max"] : ["memory.limit_in_bytes", "pids.max"];
  if (limits.some((name) => readNumber(`${directory}/${name}`) !== undefined)) return true;
  if ((readNumber(`${directory}/cpu.cfs_quota_us`) ?? 0) > 0) return true;
  return parseCpuMax(readKernelFile(`${directory}/cpu.max`) ?? "") !== undefined;
}

function parentOf(directory: string): string {
  return directory.slice(0, directory.lastIndexOf("/"));
}

/** The nearest directory from `directory` up to `top` that has a limit. */
function findLimited(directory: string, top: string, version: 1 | 2): string | undefined {
  for (let at = directory; at.length >= top.length; at = parentOf(at)) {
    if (hasFiniteLimit(at, version)) return at;
    if (at === top) break;
  }
  return undefined;
}

/**
 * Where our directory goes. A limit around our own process must hold for the sandboxes too, so below such a limit we
 * stay in our own cgroup; else the root of the hierarchy is the place.
 */
export function chooseParent(
  mount: CgroupMount,
  own: readonly ProcCgroupLine[],
  configured: readonly string[] | undefined,
): { parent: string; firstOurs: string } {
  const root = mount.mountPoint;
  if (configured !== undefined) return { parent: [root, ...configured].join("/"), firstOurs: root };
  const ownDir = ownDirectory(mount, own) ?? root;
  const limited = findLimited(ownDir, root, mount.version);
  if (limited === undefined) return { parent: root, firstOurs: root };
  const above = parentOf(ownDir);
  // On v2 a cgroup that holds processes, such as ours, cannot have limited children. systemd puts a service into a
  // cgroup below its unit's only when the unit is delegated (DelegateSubgroup=): then the unit's cgroup is ours too.
  const isDelegatedUnit = mount.version === 2 && /\.(service|scope)$/.test(above) && above.length >= limited.length;
  const parent = isDelegatedUnit ? above : ownDir;
  return { parent, firstOurs: parent };
}

export function describeHierarchy(
  name: HierarchyName,
  mount: CgroupMount,
  place: { parent: string; firstOurs: string },
  controllers: readonly LimitController[],
): Hierarchy {
  return {
    name,
    version: mount.version,
    mountPoint: mount.mountPoint,
    mountRoot: mount.root,
    parent: place.parent,
    base: `${place.parent}/${BASE_NAME}`,
    firstOurs: place.firstOurs,
    controllers,
    countsForksLocally: mount.version === 1 || mount.superOptions.includes("pids_localevents"),
  };
}

/** The controllers of a v2 cgroup that can be given to its children. */
export function availableControllers(directory: string): string[] {
  return (readKernelFile(`${directory}/cgroup.controllers`) ?? "").trim().split(" ");
}

/** Before 6.11 v2 counted refused forks as v1 does; the newer file tells the two apart. */
export function withForkCounting(hierarchy: Hierarchy): Hierarchy {
  return hierarchy.countsForksLocally || hasFile(hierarchy.base, "pids.events.local")
    ? hierarchy
    : { ...hierarchy, countsForksLocally: true };
}

/** How the kernel itself writes a cgroup's path, in its log for one. */
export function kernelPath(hierarchy: Pick<Hierarchy, "mountPoint" | "mountRoot">, directory: string): string {
  const root = hierarchy.mountRoot === "/" ? "" : hierarchy.mountRoot;
  return `${root}${directory.slice(hierarchy.mountPoint.length)}`;
}

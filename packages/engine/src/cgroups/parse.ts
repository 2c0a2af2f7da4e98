/** The kernel's text formats around cgroups, as pure functions. */

export interface ProcCgroupLine {
  /** 0 is the unified hierarchy. */
  readonly hierarchyId: number;
  /** Empty for the unified hierarchy; `name=systemd` and the like are kept as they are. */
  readonly controllers: readonly string[];
  readonly path: string;
}

/** /proc/<pid>/cgroup: `4:memory:/a/b`. The path may hold colons; the first two fields cannot. */
export function parseProcCgroup(text: string): ProcCgroupLine[] {
  const lines: ProcCgroupLine[] = [];
  for (const line of text.split("\n")) {
    const match = /^(\d+):([^:]*):(\/.*)$/.exec(line);
    if (match?.[1] === undefined || match[2] === undefined || match[3] === undefined) continue;
    const controllers = match[2] === "" ? [] : match[2].split(",");
    // The kernel marks the cgroup of a process whose directory is gone.
    lines.push({ hierarchyId: Number(match[1]), controllers, path: match[3].replace(/ \(deleted\)$/, "") });
  }
  return lines;
}

export interface CgroupMount {
  readonly version: 1 | 2;
  /** The cgroup that is mounted: not `/` in a container that sees only its own. */
  readonly root: string;
  readonly mountPoint: string;
  readonly readOnly: boolean;
  /** On v1 these name the controllers. */
  readonly superOptions: readonly string[];
}

/** Space, tab, newline and backslash are written as `\040` and so on. */
function unescapeMountField(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

/** /proc/self/mountinfo, its cgroup mounts only. A later mount on the same point hides the earlier one. */
export function parseCgroupMounts(text: string): CgroupMount[] {
  const mounts = new Map<string, CgroupMount>();
  for (const line of text.split("\n")) {
    const fields = line.split(" ");
    // Any number of optional fields stands before the lone dash; the fixed ones before it are six.
    const dash = fields.indexOf("-", 6);
    const [root, mountPoint, options] = [fields[3], fields[4], fields[5]];
    if (dash === -1 || root === undefined || mountPoint === undefined || options === undefined) continue;
    const at = unescapeMountField(mountPoint);
    const type = fields[dash + 1];
    mounts.delete(at);
    if (type !== "cgroup" && type !== "cgroup2") continue;
    const superOptions = (fields[dash + 3] ?? "").split(",");
    mounts.set(at, {
      version: type === "cgroup2" ? 2 : 1,
      root: unescapeMountField(root),
      mountPoint: at,
      readOnly: options.split(",").includes("ro") || superOptions.includes("ro"),
      superOptions,
    });
  }
  return [...mounts.values()];
}

/** Files of `key value` lines: memory.events, cpu.stat, memory.oom_control, cgroup.events. */
export function parseFlatKeyed(text: string): Map<string, number> {
  const values = new Map<string, number>();
  for (const line of text.split("\n")) {
    const match = /^(\S+) (-?\d+)$/.exec(line);
    if (match?.[1] !== undefined) values.set(match[1], Number(match[2]));
  }
  return values;
}

/** v1 writes "no limit" as the largest multiple of the page size below 2^63; nothing real comes near. */
const UNLIMITED_FROM = 2 ** 62;

/** A limit file's value; undefined is no limit: `max` on v2, `-1` or a huge number on v1. */
export function parseLimit(text: string): number | undefined {
  const word = text.trim();
  if (!/^\d+$/.test(word)) return undefined;
  const value = Number(word);
  return value >= UNLIMITED_FROM ? undefined : value;
}

/** cpu.max is `quota period` or `max period`. */
export function parseCpuMax(text: string): { quotaUsec: number; periodUsec: number } | undefined {
  const match = /^(\d+) (\d+)\s*$/.exec(text);
  return match === null ? undefined : { quotaUsec: Number(match[1]), periodUsec: Number(match[2]) };
}

/** cgroup.procs: zeros stand for processes that our own pid namespace cannot see. */
export function parsePids(text: string): number[] {
  return text.split("\n").flatMap((line) => (/^\d+$/.test(line) ? [Number(line)] : []));
}

/**
 * Where a cgroup of /proc/self/cgroup lies under a mount; undefined when the mount does not show it. A path that climbs
 * (`/../..`) is that of a process outside our cgroup namespace.
 */
export function cgroupPathUnderMount(
  mount: Pick<CgroupMount, "root" | "mountPoint">,
  path: string,
): string | undefined {
  if (path.split("/").includes("..")) return undefined;
  const root = mount.root === "/" ? "" : mount.root;
  if (path !== root && !path.startsWith(`${root}/`)) return undefined;
  const below = path.slice(root.length).replace(/\/+$/, "");
  return `${mount.mountPoint}${below}`;
}

/**
 * From a sandbox's plan to the launcher's and bubblewrap's arguments. Pure: no I/O, so that the argument list can be
 * reviewed as text. "The level of protection is entirely determined by the arguments passed to bubblewrap": this file is
 * the one to review.
 */
import { posix } from "node:path";
import { ceilingBytesOf, type SandboxLimits } from "@holdfast/protocol";
import type { MountSpec } from "../engine.js";
import type { PreparedImage } from "../images/image.js";
import type { DiskPlan } from "../storage/pool.js";

/** Descriptors that the launcher hands down, by number. */
const FD = { userns: 10, listener: 11, guest: 12, spill: 13, firstCgroup: 14 } as const;
/** Where the launcher stages sources, in a mount namespace of its own. Any directory that exists everywhere would do. */
const STAGE = "/run";
/** The launcher's status descriptor, as its parent sets it up. */
export const STATUS_FD = 3;

export interface LaunchPlan {
  readonly bwrapPath: string;
  readonly guestPath: string;
  readonly uidBase: number;
  readonly cgroupProcsFiles: readonly string[];
  readonly cgroupCommandDirs: readonly { readonly name: string; readonly path: string }[];
  readonly socketPath: string;
  readonly disk: DiskPlan & { readonly quotaBytes: number | undefined };
  readonly image: PreparedImage;
  /** A directory of what is said to programs inside; they see it as /dev/holdfast. */
  readonly insidePath: string;
  readonly mounts: readonly MountSpec[];
  readonly hostname: string;
  readonly defaultUser: string;
  readonly limits: SandboxLimits;
  readonly orphanMs: number;
  /** The guest carries connections and DNS questions out. */
  readonly egress: boolean;
  /** The guest has a process ready for the first command: see guest/src/spare.h. */
  readonly spare: boolean;
}

function stageArguments(plan: LaunchPlan): { stage: string[]; binds: string[] } {
  const stage: string[] = [];
  const binds: string[] = [];
  const layers = plan.image.layers.map((path, index) => {
    stage.push("--mount", `layer${index}`, path, "ro,idmap");
    return `layer${index}`;
  });
  stage.push("--mount", "disk", plan.disk.path, "rw,idmap");
  stage.push("--overlay", "root", layers.join(":"), "disk");
  // Half of the memory, as Linux does by default; what is in it counts as memory of whoever wrote it.
  stage.push("--dev", "dev", String(Math.floor(ceilingBytesOf(plan.limits) / 2)));
  // In /dev, which is made anew at every start: there no image and no sandbox can have put anything in the way.
  stage.push("--mount", "inside", plan.insidePath, "ro,idmap", "--nest", "inside", "dev", "holdfast");
  stage.push("--nest", "dev", "root", "dev");
  plan.image.mounts.forEach((mount, index) => {
    const names = mount.layers.map((path, layer) => {
      const name = mount.layers.length === 1 ? `part${index}` : `part${index}layer${layer}`;
      stage.push("--mount", name, path, "ro,idmap");
      return name;
    });
    if (names.length > 1) stage.push("--overlay", `part${index}`, names.join(":"), "");
    stage.push("--nest", `part${index}`, "root", mount.target.slice(1));
  });
  plan.mounts.forEach((mount, index) => {
    stage.push("--mount", `mount${index}`, mount.source, mount.readOnly ? "ro,idmap,nolinks" : "rw,idmap,nolinks");
    // Directories that bubblewrap makes on the way to a mount would be root's alone; so they are made before it.
    const parent = posix.dirname(mount.target);
    if (parent !== "/") binds.push("--dir", parent);
    binds.push(mount.readOnly ? "--ro-bind" : "--bind", `${STAGE}/mount${index}`, mount.target);
  });
  return { stage, binds };
}

function guestArguments(plan: LaunchPlan): string[] {
  const cgroups = plan.cgroupCommandDirs.flatMap((dir, index) => ["--cgroup", `${dir.name}=${FD.firstCgroup + index}`]);
  return [
    // By descriptor: the guest has no path inside, and its file belongs to nobody there.
    `/proc/self/fd/${FD.guest}`,
    "--listen-fd",
    String(FD.listener),
    ...cgroups,
    "--spill-fd",
    String(FD.spill),
    "--default-user",
    plan.defaultUser,
    "--cpu-millis",
    String(plan.limits.cpuMillis),
    "--memory-bytes",
    String(ceilingBytesOf(plan.limits)),
    "--pids",
    String(plan.limits.pids),
    "--orphan-ms",
    String(plan.orphanMs),
    // There, files have the host's ids: the guest then lets nobody make set-id programs.
    ...(plan.mounts.some((mount) => !mount.readOnly) ? ["--host-writable"] : []),
    ...(plan.egress ? ["--egress"] : []),
    ...(plan.spare ? ["--spare"] : []),
  ];
}

/** The arguments of `holdfast-launch`. */
export function launchArguments(plan: LaunchPlan): string[] {
  const { stage, binds } = stageArguments(plan);
  return [
    "start",
    "--status-fd",
    String(STATUS_FD),
    ...plan.cgroupProcsFiles.flatMap((file) => ["--join", file]),
    "--userns",
    String(plan.uidBase),
    String(FD.userns),
    "--listen",
    plan.socketPath,
    String(FD.listener),
    "--file",
    plan.guestPath,
    String(FD.guest),
    "--dir",
    `${plan.disk.path}/spill`,
    String(FD.spill),
    ...plan.cgroupCommandDirs.flatMap((dir, index) => ["--dir", dir.path, String(FD.firstCgroup + index)]),
    plan.disk.exists ? "--old-disk" : "--disk",
    plan.disk.path,
    String(plan.disk.quotaBytes ?? 0),
    ...(plan.disk.from === undefined ? [] : ["--disk-from", plan.disk.from]),
    "--stage",
    STAGE,
    ...stage,
    "--",
    plan.bwrapPath,
    "--userns",
    String(FD.userns),
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-uts",
    // Our guest is the first process: bubblewrap's own would leave a zombie with a parent that never reaps.
    "--as-pid-1",
    "--cap-add",
    "ALL",
    "--hostname",
    plan.hostname,
    "--clearenv",
    // Everything below / is in its place already, with its flags; only /dev is mounted so that device nodes work.
    "--dev-bind",
    `${STAGE}/root`,
    "/",
    "--proc",
    "/proc",
    ...binds,
    "--chdir",
    "/",
    ...guestArguments(plan),
  ];
}

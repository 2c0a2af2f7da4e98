/** Gets a sandbox's processes up, on a new disk or on one that is there, or leaves nothing of them behind. */
import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { HoldfastError, type SandboxId, type SandboxLimits } from "@holdfast/protocol";
import type { SandboxCgroup } from "../cgroups/index.js";
import type { MountSpec, SandboxSpec } from "../engine.js";
import { GuestConnection } from "../guest/connection.js";
import { linkSignals } from "../host/linked-signal.js";
import { claimUidRange, type UidRange } from "../host/uid-ranges.js";
import { prepareHostImage } from "../images/host-image.js";
import type { PreparedImage } from "../images/image.js";
import { prepareLayersImage } from "../images/layers-image.js";
import { prepareRootfsImage } from "../images/rootfs-image.js";
import type { LayerId } from "../layers.js";
import type { DiskPlan } from "../storage/pool.js";
import { type Monitor, takeDown } from "./dismantle.js";
import type { HostParts } from "./host-parts.js";
import { prepareInside } from "./inside.js";
import { type LaunchPlan, launchArguments } from "./launch-plan.js";

/** A guest that lost its owner and is not to be kept waits this long for a connection before it ends everything. */
const ORPHAN_MS = 3000;
/** How long what an ended launcher had said may take to arrive. */
const STATUS_LAG_MS = 100;
/** How long the end of a guest that refuses us may take to be known. */
const LAST_WORDS_MS = 500;
const MAX_LOG_CHARACTERS = 2000;
const EGRESS_HINT =
  "The kernel must offer these modules: modprobe -a nf_tables nft_tproxy nft_socket nft_log nfnetlink_log veth. Without them a sandbox can run with network none.";

/** Steps of the launcher that fail because the host does not offer what they need, and what to do about it. */
const HOST_REMEDIES: ReadonlyArray<readonly [step: RegExp, hint: string]> = [
  [
    /^user namespace/,
    "User namespaces must be allowed: sysctl user.max_user_namespaces=10000 (and kernel.unprivileged_userns_clone=1 where it exists).",
  ],
  [
    /^join cgroup/,
    "The cgroup file system must be mounted writable; run as root on the host, or with a delegated cgroup.",
  ],
  [
    /^map ids of/,
    "The file system of that directory cannot be mounted with mapped ids. Linux 5.12 or later with ext4, xfs or btrfs can; overlayfs (inside a container) cannot.",
  ],
  [/^overlay/, "Overlay mounts with mapped ids need Linux 5.19 or later."],
  [/^exec/, "Install bubblewrap: apt-get install bubblewrap."],
];

function prepareImage(
  skeleton: string,
  spec: Pick<SandboxSpec, "image">,
  pathOf: (layer: LayerId) => string,
): PreparedImage {
  switch (spec.image.kind) {
    case "host":
      return prepareHostImage(skeleton);
    case "rootfs":
      return prepareRootfsImage(spec.image.path, skeleton);
    case "layers":
      return prepareLayersImage(spec.image.layers, { skeleton, pathOf });
  }
}

function readLog(path: string): string {
  try {
    return readFileSync(path, "utf8").slice(-MAX_LOG_CHARACTERS).trim();
  } catch {
    return "";
  }
}

function launchError(status: string, logPath: string): HoldfastError {
  const failure = /^failed (.*)$/m.exec(status)?.[1];
  const why = failure ?? (readLog(logPath) || "it gave no reason");
  const remedy = HOST_REMEDIES.find(([step]) => step.test(why))?.[1];
  return new HoldfastError(
    remedy === undefined ? "engine_fault" : "host_unsupported",
    `the sandbox could not be started: ${why}`,
    {
      hint: remedy ?? "Run `holdfast doctor` to see what this host can do.",
    },
  );
}

/** Resolves when the launcher has become bubblewrap: its status pipe then closes without a word of failure. */
function launch(
  host: HostParts,
  plan: LaunchPlan,
  logPath: string,
  onSpawned: (monitor: Monitor) => void,
): Promise<number> {
  const log = openSync(logPath, "a", 0o600);
  return new Promise((resolve, reject) => {
    const child = spawn(host.launcher.path, launchArguments(plan), {
      // No pipe but the status: nothing of the sandbox may depend on this process being alive.
      stdio: ["ignore", log, log, "pipe"],
      detached: true,
      cwd: "/",
      env: {},
    });
    closeSync(log);
    child.unref();
    let status = "";
    let launched = false;
    let hasExited = false;
    const exited = new Promise<string>((settle) => {
      child.once("exit", (code, signal) => {
        hasExited = true;
        settle(signal === null ? `exit status ${code}` : `signal ${signal}`);
      });
      child.once("error", (error) => {
        hasExited = true;
        settle(error.message);
      });
    });
    if (child.pid !== undefined) onSpawned({ pid: child.pid, exited, hasExited: () => hasExited });
    // Killed by somebody, it says nothing, and a process it left may hold its status pipe open.
    void exited.then((how) => {
      if (!launched) setTimeout(() => reject(launchError(status || `failed to go on: ${how}`, logPath)), STATUS_LAG_MS);
    });
    child.once("error", (error) => reject(HoldfastError.from(error)));
    const pipe = child.stdio[3] as NodeJS.ReadableStream | null;
    pipe?.setEncoding("utf8");
    pipe?.on("data", (text: string) => {
      status += text;
    });
    pipe?.once("end", () => {
      const diskId = /^disk (\d+)$/m.exec(status)?.[1];
      if (diskId === undefined || /^failed /m.test(status)) reject(launchError(status, logPath));
      else {
        launched = true;
        resolve(Number(diskId));
      }
    });
  });
}

export interface BroughtUp {
  readonly connection: GuestConnection;
  readonly cgroup: SandboxCgroup;
  readonly monitor: Monitor | undefined;
  readonly uids: UidRange;
  /** The number of the disk's quota group; undefined where there are none. */
  readonly quotaId: number | undefined;
  /** Where the generated layers are that it stands on. */
  readonly skeleton: string;
}

/** The sandbox's directory among the records must be ours. */
export async function bringUp(
  host: HostParts,
  id: SandboxId,
  plan: {
    readonly spec: SandboxSpec;
    readonly limits: SandboxLimits;
    readonly disk: DiskPlan;
    readonly signal: AbortSignal | undefined;
    /** It may wait for its first command for long. */
    readonly isWarm?: boolean;
  },
): Promise<BroughtUp> {
  const { spec, limits, signal } = plan;
  const socketPath = host.records.socketPath(id);
  const logPath = host.records.pathOf(id, "launch.log");
  let uids: UidRange | undefined;
  let cgroup: SandboxCgroup | undefined;
  let monitor: Monitor | undefined;
  try {
    const skeleton = host.skeleton();
    const image = prepareImage(skeleton, spec, (layer) => host.layers.path(layer));
    uids = claimUidRange(host.records.pathOf(id));
    cgroup = host.cgroups.create(id, { limits, uid: uids.base, gid: uids.base });
    const launchPlan: LaunchPlan = {
      bwrapPath: host.bwrapPath,
      guestPath: host.launcher.guestPath,
      uidBase: uids.base,
      cgroupProcsFiles: cgroup.guestProcsFiles,
      cgroupCommandDirs: cgroup.commandDirs,
      socketPath,
      disk: { ...plan.disk, quotaBytes: host.pool.enforcesLimits ? limits.diskBytes : undefined },
      image,
      insidePath: prepareInside(host.records.pathOf(id), id),
      mounts: spec.mounts,
      hostname: spec.hostname,
      defaultUser: spec.defaultUser,
      limits,
      orphanMs: spec.whenOwnerDies === "end" ? ORPHAN_MS : 0,
      egress: spec.network.kind === "egress",
      spare: plan.isWarm ?? false,
    };
    const launched = launch(host, launchPlan, logPath, (spawned) => {
      monitor = spawned;
    });
    const diskId = await orAborted(launched, signal);
    const connection = await connectToGuest(socketPath, { logPath, monitor, signal, mounts: spec.mounts });
    return { connection, cgroup, monitor, uids, quotaId: diskId === 0 ? undefined : diskId, skeleton };
  } catch (error) {
    await takeDown(host, id, { cgroup, monitor, uidSlot: uids?.slot });
    throw error;
  }
}

/** Gives up waiting when the caller does; what was begun is taken apart by whoever catches it. */
function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(new HoldfastError("canceled", "the operation was canceled"));
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/** The caller chose the place, and it cannot be one: it is a file, or lies where nothing can be made. */
function misplacedMount(log: string, mounts: readonly MountSpec[]): HoldfastError | undefined {
  const [, path, why] = /^bwrap: Can't (?:mkdir|create)(?: parents for| file at)? ([\s\S]*): ([^:]*)$/m.exec(log) ?? [];
  const index = mounts.findIndex(({ target }) => path !== undefined && (target === path || dirname(target) === path));
  if (path === undefined || index === -1) return undefined;
  return new HoldfastError(
    "invalid_argument",
    `mounts[${index}].target: expected a place where a directory is or can be made, got ${JSON.stringify(mounts[index]?.target)} (${path}: ${why})`,
    { hint: "Mount it elsewhere.", details: { field: `mounts[${index}].target` } },
  );
}

/** A guest that dies before it says hello leaves its last words in the log; they are worth more than "connection closed". */
async function connectToGuest(
  socketPath: string,
  {
    logPath,
    monitor,
    signal,
    mounts,
  }: {
    readonly logPath: string;
    readonly monitor: Monitor | undefined;
    readonly signal: AbortSignal | undefined;
    readonly mounts: readonly MountSpec[];
  },
): Promise<GuestConnection> {
  const gone = new AbortController();
  const either = linkSignals([signal, gone.signal]);
  let exitStatus: string | undefined;
  void monitor?.exited.then((status) => {
    exitStatus = status;
    gone.abort();
  });
  try {
    return await GuestConnection.open(socketPath, { signal: either.signal });
  } catch (error) {
    // A guest that ends at once is refused here a moment before its end is known: that end explains more.
    if (monitor !== undefined && !either.signal.aborted) {
      // The child does not keep this process alive. Nothing else may at this moment, and somebody waits for the answer.
      await sleep(LAST_WORDS_MS, undefined, { signal: either.signal }).catch(() => undefined);
    }
    const log = readLog(logPath);
    if (log === "" && exitStatus === undefined) throw error;
    const missing = /^holdfast-guest: no way out: (.*)$/m.exec(log)?.[1];
    if (missing !== undefined) {
      throw new HoldfastError("host_unsupported", `the sandbox cannot have a network here: ${missing}`, {
        hint: EGRESS_HINT,
      });
    }
    const misplaced = misplacedMount(log, mounts);
    if (misplaced !== undefined) throw misplaced;
    const ended = exitStatus === undefined ? "" : ` (bubblewrap ended: ${exitStatus})`;
    throw new HoldfastError(
      "guest_fault",
      `the guest did not come up${ended}: ${log || HoldfastError.from(error).message}`,
      { cause: error },
    );
  } finally {
    either.unlink();
  }
}

/**
 * A btrfs file system in a sparse file, loop-mounted, as LXD does it. A disk is a subvolume with a qgroup limit.
 *
 * Several processes may use one pool. Each leaves a file named after itself in `users/`; under the pool's lock, whoever
 * closes last unmounts it, unless a sandbox still runs on it. A user that was killed is known by its start time and does
 * not count. Stopped sandboxes and layers need no mount: whoever wants them opens the pool.
 */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { formatBytes, HoldfastError } from "@holdfast/protocol";
import { withHostLock } from "../host/host-lock.js";
import type { Launcher } from "../host/launcher.js";
import { isAlive, ourIdentity } from "../host/processes.js";
import { runProgram, tryProgram } from "../host/run-program.js";
import { readCapacity } from "./capacity.js";
import type { Disk, Pool } from "./pool.js";
import { removeSmallDisk } from "./remove-small-disk.js";

const GIB = 1024 ** 3;
/** btrfs needs about 110 MiB to exist at all. */
const SMALLEST_POOL_BYTES = GIB;
const LARGEST_DEFAULT_POOL_BYTES = 1024 * GIB;
/** The launcher knows it by this name. */
const FIRST_INODE = "first-inode";
/** No tree is higher. */
const BTRFS_LEVELS = 8;

/** Where it is mounted, and the file that it is made of. */
export function btrfsPoolPaths(stateDirectory: string): { readonly directory: string; readonly file: string } {
  return { directory: join(stateDirectory, "pool"), file: join(stateDirectory, "pool.btrfs") };
}

/** True if something is mounted exactly at this directory. */
export function isMounted(directory: string): boolean {
  const escaped = directory.replace(/[\\ \t\n]/g, (char) => `\\${char.charCodeAt(0).toString(8).padStart(3, "0")}`);
  return readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .some((line) => line.split(" ")[4] === escaped);
}

/** The pool may take what is free now, less a tenth that stays the host's whatever sandboxes do. */
export function defaultPoolBytes(directory: string): number {
  const info = statfsSync(directory);
  const free = info.bavail * info.bsize;
  const size = Math.min(LARGEST_DEFAULT_POOL_BYTES, Math.floor((free * 0.9) / GIB) * GIB);
  if (size < SMALLEST_POOL_BYTES) {
    throw new HoldfastError(
      "host_capacity",
      `a disk pool needs ${formatBytes(SMALLEST_POOL_BYTES)}, but ${directory} has ${formatBytes(free)} free`,
      {
        hint: "Free some space, choose another state directory (--state-dir), or use the weaker pool by name: --pool dir.",
      },
    );
  }
  return size;
}

/**
 * A file system takes over the inode numbers of what it is filled with, and numbers are given out from the highest on: with
 * one very high number in it, layers' numbers stay clear of those of disks. Files of /proc have such numbers. Where mkfs.btrfs
 * gives out numbers of its own, the launcher counts up to a lower one.
 */
async function makeFileSystem(file: string): Promise<void> {
  const content = `${file}.content`;
  rmSync(content, { recursive: true, force: true });
  mkdirSync(content, { mode: 0o700 });
  writeFileSync(join(content, FIRST_INODE), "");
  try {
    const script = 'mount --bind /proc/version "$1/$2" && exec mkfs.btrfs -q -f -m single --rootdir "$1" "$3"';
    const args = ["--mount", "--propagation", "private", "sh", "-c", script, "sh", content, FIRST_INODE, file];
    await runProgram("unshare", args, "host_unsupported");
  } catch (error) {
    throw new HoldfastError("host_unsupported", `mkfs.btrfs made no disk pool: ${HoldfastError.from(error).message}`, {
      cause: error,
      hint: "apt-get install btrfs-progs, or choose the weaker pool by name: --pool dir. `holdfast doctor` tells what is missing.",
    });
  } finally {
    rmSync(content, { recursive: true, force: true });
  }
}

async function mountPool(file: string, directory: string, launcher: Launcher): Promise<void> {
  if (!existsSync(file)) {
    const fresh = `${file}.new`;
    writeFileSync(fresh, "", { mode: 0o600 });
    truncateSync(fresh, defaultPoolBytes(dirname(file)));
    await makeFileSystem(fresh);
    // Under its final name only when it is whole: a mkfs that was cut off is made anew next time.
    await runProgram("mv", [fresh, file]);
  }
  // discard: what sandboxes free is given back to the host's file system, the pool's file being sparse.
  const mounted = await tryProgram("mount", [
    "-t",
    "btrfs",
    "-o",
    "loop,noatime,nosuid,nodev,discard=async",
    file,
    directory,
  ]);
  if (mounted.code !== 0) {
    throw new HoldfastError("host_unsupported", `cannot mount the disk pool: ${mounted.stderr.trim()}`, {
      hint: "The default pool needs loop devices and btrfs in the kernel (modprobe loop btrfs). Without them choose the weaker pool by name: --pool dir.",
    });
  }
  // Of the file system's own root: the mount hides the directory below it.
  chmodSync(directory, 0o700);
  await launcher.enableQuotas(directory);
}

/** Where the kernel shows this file system's quota groups. */
function quotaDirectory(directory: string): string {
  const line = readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .find((candidate) => candidate.split(" ")[4] === directory);
  const device = basename(line?.split(" - ")[1]?.split(" ")[1] ?? "");
  for (const id of readdirSync("/sys/fs/btrfs")) {
    if (device !== "" && existsSync(`/sys/fs/btrfs/${id}/devices/${device}`)) return `/sys/fs/btrfs/${id}/qgroups`;
  }
  throw new HoldfastError(
    "engine_fault",
    `no btrfs file system is known for ${directory} (device ${device || "unknown"})`,
  );
}

/**
 * By default the kernel stops counting, for all disks, when a large one is dropped that shares its blocks. Limits that are
 * no longer enforced are worse than a removal that takes longer.
 */
function keepCounting(quotas: string): void {
  try {
    writeFileSync(join(quotas, "drop_subtree_threshold"), String(BTRFS_LEVELS));
  } catch {
    // Kernels before 6.1 never stop counting.
  }
}

function readSysfsNumber(path: string): number {
  try {
    return Number(readFileSync(path, "utf8").trim());
  } catch {
    // Older kernels lack some of these files.
    return 0;
  }
}

export async function openBtrfsPool(options: {
  readonly stateDirectory: string;
  readonly launcher: Launcher;
  /** Whether any process's sandbox may be running on it. */
  readonly isInUse: () => boolean;
}): Promise<Pool> {
  const { stateDirectory, launcher, isInUse } = options;
  const { directory, file } = btrfsPoolPaths(stateDirectory);
  const users = join(stateDirectory, "pool-users");
  const lock = join(stateDirectory, "pool.lock");
  /** What layers' inode numbers begin after; see the launcher's numbers.c. */
  const seed = join(directory, "inodes");
  const us = ourIdentity();
  // One process may hold the pool more than once (two engines): a number of its own for each.
  const ourFile = join(users, `${us.pid}.${us.startTicks}.${process.hrtime.bigint()}`);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  mkdirSync(users, { recursive: true, mode: 0o700 });

  await withHostLock(lock, async () => {
    if (!isMounted(directory)) await mountPool(file, directory, launcher);
    if (!existsSync(seed)) await launcher.makeSeed(directory);
    writeFileSync(ourFile, "");
  });
  const quotas = quotaDirectory(directory);
  keepCounting(quotas);

  const liveUsers = (): string[] =>
    readdirSync(users).filter((name) => {
      const [pid, startTicks] = name.split(".");
      if (pid !== undefined && startTicks !== undefined && isAlive({ pid: Number(pid), startTicks })) return true;
      rmSync(join(users, name), { force: true });
      return false;
    });

  const referencedBytes = (quotaId: number): number => readSysfsNumber(join(quotas, `0_${quotaId}`, "referenced"));

  const knownUsedBytes = (disk: Disk): number | null => {
    if (disk.quotaId === undefined) return null;
    // `referenced` counts what is committed; reservations are what is being written right now.
    const quota = join(quotas, `0_${disk.quotaId}`);
    return readSysfsNumber(join(quota, "referenced")) + readSysfsNumber(join(quota, "rsv_data"));
  };

  return {
    kind: "btrfs",
    directory,
    enforcesLimits: true,
    usedBytes: (disk) => Promise.resolve(knownUsedBytes(disk)),
    knownUsedBytes,
    capacity: () => readCapacity(directory, stateDirectory),
    settle: (disk) => launcher.settleDisk(disk.path),
    setLimit: (disk, limitBytes) => launcher.limitDisk(disk.path, limitBytes),
    remove: (path) => (removeSmallDisk(path) ? Promise.resolve() : launcher.removeDisk(path)),
    cloning: "clone",
    cloneDisk: (from, to) => launcher.cloneDisk(from, to),
    diskFromLayer: (layer, path) => Promise.resolve({ path, exists: false, from: layer }),
    diskForLayer: (path) => ({ path, exists: false, from: seed }),
    makeLayer: (path) => launcher.makeLayer(path, "subvolume", seed),
    async finishLayer(path, { isClone, fresh }) {
      const quotaId = await launcher.finishLayer(path, "subvolume", {
        state: isClone ? "synced" : "written",
        numbering: isClone ? undefined : { seed, fresh },
      });
      return { sizeBytes: () => Promise.resolve(referencedBytes(quotaId)) };
    },
    layerBytes: async (path) => referencedBytes(await launcher.subvolumeId(path)),
    async close() {
      await withHostLock(lock, async () => {
        rmSync(ourFile, { force: true });
        if (liveUsers().length > 0 || !isMounted(directory)) return;
        if (isInUse()) return;
        // A sandbox's mount namespace may take a moment to go after its last process.
        for (let attempt = 0; attempt < 20; attempt++) {
          if ((await tryProgram("umount", [directory])).code === 0) return;
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      });
    },
  };
}

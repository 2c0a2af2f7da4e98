/** Whether files of the host can be shown inside under other ids: a question to the file systems they are on. */
import { readKernelText } from "./read-kernel-text.js";
import type { DoctorRow } from "./row.js";

const ABLE = ["ext4", "xfs", "btrfs", "tmpfs", "f2fs", "vfat", "erofs", "cephfs", "bcachefs", "ext2", "ext3"];
const UNABLE = ["overlay", "nfs", "nfs4", "9p", "fuse", "virtiofs", "squashfs"];

/** The type of the file system that holds a path: the mount with the longest matching mount point. */
export function fileSystemOf(path: string, mountinfo: string): string | undefined {
  let best: { readonly at: string; readonly type: string } | undefined;
  for (const line of mountinfo.split("\n")) {
    const at = line.split(" ")[4];
    const type = line.split(" - ")[1]?.split(" ")[0];
    if (at === undefined || type === undefined) continue;
    const holds = at === "/" || path === at || path.startsWith(`${at}/`);
    // Of two mounts at one place the later one hides the earlier.
    if (holds && at.length >= (best?.at.length ?? 0)) best = { at, type };
  }
  return best?.type;
}

export function inspectIdMappedMounts(
  stateDirectory: string,
  mountinfo = readKernelText("/proc/self/mountinfo") ?? "",
): DoctorRow {
  const name = "id-mapped mounts";
  const places = ["/usr", stateDirectory].map((path) => ({ path, type: fileSystemOf(path, mountinfo) ?? "unknown" }));
  const by = places.map(({ path, type }) => `${path} on ${type}`).join(", ");
  const unable = places.filter(({ type }) => UNABLE.includes(type) || type.startsWith("fuse."));
  if (unable.length > 0) {
    const remedy = `Use a host whose ${unable.map(({ path }) => path).join(" and ")} is on ext4, xfs or btrfs; in a container, mount such a volume and choose --state-dir and --image on it.`;
    return {
      name,
      state: "weak",
      by: `${by}: not every kernel maps ids there; the last row is the proof`,
      remedy,
      required: true,
    };
  }
  if (places.every(({ type }) => ABLE.includes(type))) return { name, state: "ok", by, required: true };
  return {
    name,
    state: "weak",
    by: `${by}: not known to map ids; the last row is the proof`,
    remedy: "Prefer ext4, xfs or btrfs.",
    required: true,
  };
}

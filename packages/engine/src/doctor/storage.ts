/** What a sandbox's files are made of, and whether the kernel bounds them. */
import { existsSync } from "node:fs";
import { findProgram } from "../host/find-program.js";
import { tryProgram } from "../host/run-program.js";
import type { PoolKind } from "../storage/pool.js";
import { readKernelText } from "./read-kernel-text.js";
import type { DoctorRow } from "./row.js";

export async function inspectStorage(pool: PoolKind): Promise<DoctorRow[]> {
  const overlay = await fileSystemRow("overlay", { required: true, remedy: "modprobe overlay" });
  const needed = pool === "btrfs";
  const btrfs = await fileSystemRow("btrfs", { required: needed, remedy: "modprobe btrfs, or choose --pool dir." });
  const rows = [overlay, btrfs, mkfsRow(needed), loopRow(needed)];
  const lacking = rows.slice(1).filter((row) => row.state === "missing");
  return [
    ...rows,
    diskLimitRow(
      pool,
      lacking.map((row) => row.name),
    ),
  ];
}

/** A file system that is not loaded yet may still come as a module when it is first mounted. */
async function fileSystemRow(
  name: string,
  { required, remedy }: { required: boolean; remedy: string },
): Promise<DoctorRow> {
  const known = readKernelText("/proc/filesystems")?.split("\n") ?? [];
  if (known.some((line) => line.split("\t").at(-1) === name))
    return { name, state: "ok", by: "in the kernel", required };
  const probe = await tryProgram("modprobe", ["-n", "-q", name]).catch(() => undefined);
  if (probe?.code === 0) return { name, state: "ok", by: "as a module", required };
  return { name, state: required ? "missing" : "weak", by: "the kernel does not know it", remedy, required };
}

function mkfsRow(required: boolean): DoctorRow {
  const name = "mkfs.btrfs";
  const path = findProgram(name);
  if (path !== undefined) return { name, state: "ok", by: path, required };
  return {
    name,
    state: required ? "missing" : "weak",
    by: "not installed",
    remedy: "apt-get install btrfs-progs",
    required,
  };
}

function loopRow(required: boolean): DoctorRow {
  const name = "loop devices";
  if (existsSync("/dev/loop-control")) return { name, state: "ok", by: "/dev/loop-control", required };
  const remedy = "modprobe loop, or choose --pool dir.";
  return { name, state: required ? "missing" : "weak", by: "no /dev/loop-control", remedy, required };
}

function diskLimitRow(pool: PoolKind, lacking: readonly string[]): DoctorRow {
  const name = "disk limit";
  if (pool === "dir") {
    const by = "watched once a second, not enforced (pool dir): a sandbox over its limit is ended, having been over it";
    return { name, state: "weak", by, remedy: "Leave out --pool dir and HOLDFAST_POOL=dir.", required: true };
  }
  if (lacking.length === 0)
    return { name, state: "ok", by: "btrfs quota groups (pool btrfs, in a loop file)", required: true };
  const remedy = "See the rows above, or choose the weaker pool by name: --pool dir.";
  return { name, state: "missing", by: `pool btrfs lacks ${lacking.join(", ")}`, remedy, required: true };
}

/** What everything stands on: the kernel, the privilege, the runtime. */
import { release } from "node:os";
import type { DoctorRow } from "./row.js";

/** "6.18.44-cloud" is at least [5, 19]. */
export function isAtLeast(version: string, [major, minor]: readonly [number, number]): boolean {
  const [, a = "0", b = "0"] = /(\d+)\.(\d+)/.exec(version) ?? [];
  return Number(a) > major || (Number(a) === major && Number(b) >= minor);
}

export function inspectPlatform(
  facts = {
    platform: process.platform as string,
    kernel: release(),
    uid: process.getuid?.(),
    node: process.versions.node,
  },
): DoctorRow[] {
  if (facts.platform !== "linux") {
    const remedy = "Run Holdfast on a Linux machine, or in a Linux virtual machine.";
    return [{ name: "Linux", state: "missing", by: `this is ${facts.platform}`, remedy, required: true }];
  }
  return [kernelRow(facts.kernel), rootRow(facts.uid), nodeRow(facts.node)];
}

function kernelRow(kernel: string): DoctorRow {
  const name = "kernel";
  const by = `Linux ${kernel}`;
  if (isAtLeast(kernel, [5, 19])) return { name, state: "ok", by, required: true };
  const remedy = "Upgrade to Linux 5.19 or later: overlay file systems cannot be mounted with mapped ids before.";
  return { name, state: "missing", by, remedy, required: true };
}

function rootRow(uid: number | undefined): DoctorRow {
  const name = "root";
  if (uid === 0) return { name, state: "ok", by: "running as root; nothing inside a sandbox is", required: true };
  const remedy = "Run it with sudo: cgroups, mounts and user namespaces with many ids belong to root.";
  return { name, state: "missing", by: `running as uid ${uid ?? "unknown"}`, remedy, required: true };
}

function nodeRow(node: string): DoctorRow {
  const name = "Node.js";
  if (isAtLeast(node, [20, 19])) return { name, state: "ok", by: `version ${node}`, required: true };
  return { name, state: "missing", by: `version ${node}`, remedy: "Install Node.js 20.19 or later.", required: true };
}

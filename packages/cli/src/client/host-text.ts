/** What the host has and what is promised of it. */
import { formatBytes, type HostInfo, printable, type WarmInfo } from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";
import { shortSize } from "../text/sizes.js";
import { formatTable } from "../text/table.js";

export function hostText(
  { version, engine, memory, cpus, pids, disk, sandboxes, waiting, pressure, warm }: HostInfo,
  colours: Colours,
): string {
  const row = (name: string, text: string): string[] => [colours.bold(name), text];
  return formatTable([
    row("holdfast", `${printable(version)}, engine ${printable(engine)}`),
    row("sandboxes", `${sandboxes.running} running, ${sandboxes.paused} paused`),
    row(
      "memory",
      `${formatBytes(memory.totalBytes)}, of which ${formatBytes(memory.reserveBytes)} are kept for the host; available now ${formatBytes(memory.availableBytes)}`,
    ),
    row("  promised", `${formatBytes(memory.promisedBytes)} of ${formatBytes(memory.roomBytes)} that can be now`),
    row(
      "  in use",
      `${formatBytes(memory.usedBytes)} by running sandboxes, ${formatBytes(memory.pausedBytes)} by paused ones`,
    ),
    row("CPUs", String(cpus)),
    row("processes", `${pids.used} in use, ${pids.promised} promised of ${pids.room}`),
    row(
      "disk",
      `${formatBytes(disk.usedBytes)} in use of the pool's ${formatBytes(disk.totalBytes)}, ${formatBytes(disk.promisedBytes)} promised of ${formatBytes(disk.roomBytes)}`,
    ),
    row("ready", readyText(warm)),
    row("waiting", waiting === 0 ? "nobody" : `${waiting} for room`),
    row("pressure", pressureText(pressure)),
  ]);
}

function pressureText({ memory, processes, frozen }: HostInfo["pressure"]): string {
  const stall = memory.stall === null ? "" : `, ${memory.stall.full} % of the time lost to waiting for it`;
  const standing = frozen === 0 ? "" : `; ${frozen} sandboxes stand still`;
  return `memory ${memory.stage} (${memory.usedPercent} % in use${stall}); processes ${processes.stage} (${processes.live} live, ${processes.zombies} dead, ${processes.orphans} orphaned)${standing}`;
}

function readyText({ ready, promisedBytes, usedBytes, usedPids, hits, misses, waste }: WarmInfo): string {
  const wasted = Object.entries(waste).filter(([, count]) => count > 0);
  const causes = wasted.map(([cause, count]) => `${printable(cause)} ${count}`).join(", ");
  return `${ready}, holding ${formatBytes(usedBytes)} and ${usedPids} processes, ${formatBytes(promisedBytes)} promised; ${hits} handed out, ${misses} missed, unused: ${causes === "" ? "none" : causes}`;
}

/** The same in one line, for the head of `holdfast top`. */
export function hostLine({ sandboxes, memory, pids }: HostInfo): string {
  const held = memory.usedBytes + memory.pausedBytes;
  return `${sandboxes.running} running, ${sandboxes.paused} paused   memory ${shortSize(held)} in use, ${shortSize(memory.promisedBytes)} promised of ${shortSize(memory.roomBytes)}   processes ${pids.used}`;
}

/** What a person reads about an ending: what happened, the numbers, and what to do. */
import type { CommandCause, Incident, OomVictim, OutOfDisk, OutOfMemory, OutOfPids, SandboxCause } from "./causes.js";
import { formatBytes, formatDuration, sizeFlag } from "./units.js";

const MIB = 1024 * 1024;

const MEMORY_FLAG = "--memory";

/** A next size worth trying: twice the limit, in whole MiB. */
export function nextMemoryBytes(limitBytes: number): number {
  const mib = Math.max(1, Math.ceil((limitBytes * 2) / MIB));
  return mib * MIB;
}

function describeVictim(victim: OomVictim): string {
  const pid =
    victim.pid === null ? (victim.hostPid === null ? "" : ` (host pid ${victim.hostPid})`) : ` (pid ${victim.pid})`;
  const held = victim.rssBytes === null ? "" : ` held ${formatBytes(victim.rssBytes)}`;
  return `${victim.name}${pid}${held}`;
}

/** "which had grown from 128 MiB to 192 MiB and 256 MiB" */
function describeLimitHistory({ limitHistory = [] }: OutOfMemory): string {
  const [first] = limitHistory;
  if (first === undefined) return "";
  const steps = limitHistory.map(({ toBytes }) => formatBytes(toBytes));
  const last = steps.pop() ?? "";
  const way = steps.length === 0 ? last : `${steps.slice(-5).join(", ")} and ${last}`;
  return `which had moved from ${formatBytes(first.fromBytes)} to ${way}`;
}

function adviseOnMemory({ limitHistory = [], ceilingBytes }: OutOfMemory, limitBytes: number, flag: string): string {
  if (ceilingBytes !== undefined && limitBytes < ceilingBytes) {
    return `It could grow to ${formatBytes(ceilingBytes)}, but the host had no room. Run fewer sandboxes at once, or try again later.`;
  }
  const start = limitHistory[0] === undefined ? "" : `${sizeFlag(limitHistory[0].fromBytes)}..`;
  return `Try ${flag} ${start}${sizeFlag(nextMemoryBytes(limitBytes))}.`;
}

function describeOutOfMemory(cause: OutOfMemory, memoryFlag = MEMORY_FLAG): string {
  const limit = cause.limitBytes === null ? "" : `limit ${formatBytes(cause.limitBytes)}`;
  const peak = cause.peakBytes === null ? "" : `peak ${formatBytes(cause.peakBytes)}`;
  const victims = cause.victims.slice(0, 3).map(describeVictim);
  if (cause.victims.length > 3) victims.push(`and ${cause.victims.length - 3} more`);
  const numbers = [limit, describeLimitHistory(cause), peak, ...victims].filter((part) => part !== "").join(", ");
  if (cause.scope === "host") {
    return `the host itself ran out of memory (${numbers}). Run fewer sandboxes at once, or give the host more memory.`;
  }
  const advice = cause.limitBytes === null ? "" : ` ${adviseOnMemory(cause, cause.limitBytes, memoryFlag)}`;
  const whose = cause.scope === "command" ? "the command's own " : "";
  return `${whose}${numbers}.${advice}`;
}

function describeOutOfPids(cause: OutOfPids): string {
  // The limit is the sandbox's: one that used few of them was refused because of what else runs there.
  const others = cause.peak !== null && cause.peak < cause.limit / 2;
  const peak =
    cause.peak === null
      ? ""
      : others
        ? `, of which it had ${cause.peak} itself: the rest are held by what else runs in the sandbox`
        : `, peak ${cause.peak}`;
  return `limit ${cause.limit}${peak}, ${cause.refused} ${cause.refused === 1 ? "fork was" : "forks were"} refused. Try --pids ${cause.limit * 2}, or start fewer processes at once.`;
}

function describeOutOfDisk(cause: OutOfDisk): string {
  return `limit ${formatBytes(cause.limitBytes)}, used ${formatBytes(cause.usedBytes)}. Try --disk ${sizeFlag(nextMemoryBytes(cause.limitBytes))}, or write less.`;
}

export function describeCommandCause(cause: CommandCause): string {
  switch (cause.kind) {
    case "exited":
      return cause.code === 0 ? "Finished." : `Exited with code ${cause.code}.`;
    case "signaled":
      return cause.by === "caller"
        ? `Ended by ${cause.signal}, as asked.`
        : `Ended by ${cause.signal}, which came from inside the sandbox: the program crashed, or another program in it sent the signal.`;
    case "timed_out":
      return `Timed out: limit ${formatDuration(cause.limitMs)}. Everything it had started was ended. Try --timeout ${Math.ceil((cause.limitMs * 2) / 1000)}s.`;
    case "out_of_memory":
      return `Killed for memory: ${describeOutOfMemory(cause)}`;
    case "out_of_pids":
      return `Ran out of processes: ${describeOutOfPids(cause)}`;
    case "out_of_disk":
      return `Ran out of disk: ${describeOutOfDisk(cause)}`;
    case "canceled":
      return `Canceled by ${cause.by}.`;
    case "lost":
      return `Lost: ${cause.why}.`;
  }
}

/** `memoryFlag`: what gives it more memory, where that is not a sandbox's own flag. */
export function describeIncident(incident: Incident, memoryFlag = MEMORY_FLAG): string {
  switch (incident.kind) {
    case "out_of_memory":
      return `On the way, ${incident.kills} ${incident.kills === 1 ? "process was" : "processes were"} killed for memory: ${describeOutOfMemory(incident, memoryFlag)}`;
    case "out_of_pids":
      return `On the way, it ran out of processes: ${describeOutOfPids(incident)}`;
    case "out_of_disk":
      return `On the way, it ran out of disk: ${describeOutOfDisk(incident)}`;
    case "memory_held":
      return `On the way, its sandbox was at its memory limit of ${formatBytes(incident.limitBytes)} for ${formatDuration(incident.heldMs)}, because the host had no room for more: programs that need memory may fail then. Run fewer sandboxes at once, or try again later.`;
  }
}

export function describeCommandEnding(cause: CommandCause, incidents: readonly Incident[]): string {
  return [describeCommandCause(cause), ...incidents.map((incident) => describeIncident(incident))].join(" ");
}

export function describeSandboxCause(cause: SandboxCause): string {
  switch (cause.kind) {
    case "killed":
      return `Killed by ${cause.by}.`;
    case "stopped":
      return `Stopped by ${cause.by}; its files are kept.`;
    case "timed_out":
      return `Reached the end of its life: limit ${formatDuration(cause.limitMs)}.`;
    case "out_of_memory":
      return `Killed for memory: ${describeOutOfMemory(cause)}`;
    case "out_of_disk":
      return `Ended for disk: ${describeOutOfDisk(cause)}`;
    case "guest_exited":
      return `Its first process ended (${cause.status}), and everything with it.`;
    case "guest_broke_protocol":
      return `Ended because its first process broke the protocol: ${cause.why}.`;
    case "failed_to_start":
      return `Did not start: ${cause.why}.`;
    case "swept":
      return `Swept away: ${cause.why}.`;
    case "lost":
      return `Lost: ${cause.why}.`;
  }
}

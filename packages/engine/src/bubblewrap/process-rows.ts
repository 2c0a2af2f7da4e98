/** The processes of a sandbox as the host sees them. What they say about themselves (names, arguments) is hostile text. */
import { closeSync, openSync, readSync } from "node:fs";
import { type ProcessRow, printable } from "@holdfast/protocol";
import type { SandboxCgroup } from "../cgroups/index.js";

export const MOST_PROCESS_ROWS = 512;
const LONGEST_COMMAND_LINE = 512;
/** So many are read however long it takes: on a busy host time says little. */
const LEAST_ROWS = 32;

const scratch = Buffer.allocUnsafe(4096);

/** The beginning of a file of /proc; undefined if the process is gone. */
function readStart(path: string): string | undefined {
  let fd: number;
  try {
    fd = openSync(path, "r");
  } catch {
    return undefined;
  }
  try {
    return scratch.toString("utf8", 0, readSync(fd, scratch, 0, scratch.length, null));
  } catch {
    // ESRCH: it ended between the two calls.
    return undefined;
  } finally {
    closeSync(fd);
  }
}

export function parseProcessStatus(text: string): Pick<ProcessRow, "pid" | "state" | "name" | "rssBytes"> {
  // The kernel escapes line breaks in the name, so nobody can make up lines of his own.
  const field = (name: string) => new RegExp(`^${name}:[ \\t]*(.*)$`, "m").exec(text)?.[1];
  // From our own namespace inwards: the second is the sandbox's.
  const pid = field("NSpid")?.trim().split(/\s+/)[1];
  const rss = /^(\d+) kB$/.exec(field("VmRSS")?.trim() ?? "")?.[1];
  return {
    pid: pid === undefined ? null : Number(pid),
    state: printable(field("State") ?? "?").slice(0, 1),
    name: printable(field("Name") ?? "?"),
    rssBytes: rss === undefined ? 0 : Number(rss) * 1024,
  };
}

/** Arguments end with NUL; a program may have written anything over them. */
export function formatCommandLine(text: string): string {
  return printable(text.replace(/\0+$/, "").replaceAll("\0", " ")).slice(0, LONGEST_COMMAND_LINE);
}

export function readProcessRows(cgroup: SandboxCgroup, options: { readonly budgetMs?: number } = {}): ProcessRow[] {
  const deadline = performance.now() + (options.budgetMs ?? Number.POSITIVE_INFINITY);
  const rows: ProcessRow[] = [];
  for (const { hostPid, commandId } of cgroup.processesByCommand()) {
    if (rows.length >= MOST_PROCESS_ROWS) break;
    if (rows.length >= LEAST_ROWS && performance.now() > deadline) break;
    const status = readStart(`/proc/${hostPid}/status`);
    if (status === undefined) continue;
    const commandLine = formatCommandLine(readStart(`/proc/${hostPid}/cmdline`) ?? "");
    rows.push({ hostPid, commandId, commandLine, ...parseProcessStatus(status) });
  }
  return rows;
}

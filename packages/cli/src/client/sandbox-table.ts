/** The table of `holdfast ps`. */
import { ceilingBytesOf, printable, type SandboxInfo } from "@holdfast/protocol";
import type { Colours } from "../text/colours.js";
import { shortSize } from "../text/sizes.js";
import { formatTable } from "../text/table.js";
import { shortDuration } from "../text/times.js";

export interface TableSurroundings {
  readonly colours: Colours;
  readonly now: number;
  /** Undefined: as wide as it gets. */
  readonly width: number | undefined;
}

const HEAD = ["ID", "TEMPLATE", "STATUS", "AGE", "LEFT", "MEMORY", "ABOUT"];

export function paintStatus(status: SandboxInfo["status"], colours: Colours): string {
  switch (status) {
    case "running":
      return colours.green(status);
    case "ended":
      return colours.dim(status);
    case "creating":
    case "paused":
      return colours.yellow(status);
  }
}

/** How it ended, or what it is for. */
function about({ ending, metadata, memoryKept, status }: SandboxInfo): string {
  if (ending !== null) return printable(ending.message);
  const pairs = Object.entries(metadata).map(([name, value]) => printable(`${name}=${value}`));
  if (status === "paused" && memoryKept === false) pairs.unshift("files only");
  return pairs.join(" ");
}

function timeLeft({ expiresAt, status }: SandboxInfo, now: number): string {
  return expiresAt === null || status === "paused" || status === "ended"
    ? "-"
    : shortDuration(Date.parse(expiresAt) - now);
}

export function sandboxTable(sandboxes: readonly SandboxInfo[], { colours, now, width }: TableSurroundings): string {
  const rows = sandboxes.map((sandbox) => [
    sandbox.id,
    printable(sandbox.template),
    paintStatus(sandbox.status, colours),
    shortDuration(now - Date.parse(sandbox.createdAt)),
    timeLeft(sandbox, now),
    shortSize(ceilingBytesOf(sandbox.limits)),
    about(sandbox),
  ]);
  return formatTable([HEAD.map(colours.bold), ...rows], width === undefined ? {} : { width });
}

/** The numbers behind a cause, short enough for a table. */
import { formatBytes, formatDuration } from "@holdfast/protocol";
import type { ProgramResult } from "./run-program.js";

export function isAsExpected({ program, ending }: Pick<ProgramResult, "program" | "ending">): boolean {
  return ending.cause.kind === program.expected && (ending.cause.kind !== "exited" || ending.cause.code === 0);
}

type Facts = Pick<ProgramResult, "ending" | "keptBytes" | "ourGrowthBytes" | "program">;

export function describeCause({ ending, keptBytes, ourGrowthBytes, program }: Facts): string {
  const { cause, usage } = ending;
  switch (cause.kind) {
    case "out_of_memory": {
      const limit = cause.limitBytes === null ? "" : `limit ${formatBytes(cause.limitBytes)}, `;
      const [victim] = cause.victims;
      const held = victim?.rssBytes == null ? "" : `, ${victim.name} held ${formatBytes(victim.rssBytes)}`;
      return `${limit}${cause.kills} killed${held}`;
    }
    case "out_of_pids":
      return `limit ${cause.limit}${cause.peak === null ? "" : `, peak ${cause.peak}`}, ${cause.refused} refused`;
    case "out_of_disk":
      return `limit ${formatBytes(cause.limitBytes)}, used ${formatBytes(cause.usedBytes)}`;
    case "timed_out":
      return `limit ${formatDuration(cause.limitMs)}, grace ${formatDuration(program.graceMs)}, then killed`;
    case "exited":
      return `code ${cause.code}, wrote ${formatBytes(usage.stdoutBytes)}, kept ${formatBytes(keptBytes)}, we grew by ${formatBytes(ourGrowthBytes)}`;
    case "signaled":
      return cause.signal;
    case "canceled":
      return `by ${cause.by}`;
    case "lost":
      return cause.why;
  }
}

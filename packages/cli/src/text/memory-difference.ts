import { formatBytes, type MemoryReport } from "@holdfast/protocol";

/** What to tell whoever asked for another amount of memory than there is; undefined if there is no difference. */
export function memoryDifference({ requestedBytes, effectiveBytes, reason }: MemoryReport): string | undefined {
  if (requestedBytes === null || requestedBytes === effectiveBytes) return undefined;
  const why = reason === null ? "" : `: ${reason}`;
  return `--memory: it has ${formatBytes(effectiveBytes)}, not ${formatBytes(requestedBytes)}${why}`;
}

import type { Engine } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";

/** What layers may still take, beside what is left for the sandboxes that run on the same disk. */
const RESERVED_SHARE = 0.02;

/** Refuses with both numbers if the layers would not fit; resolves to how much may be written. */
export async function checkPoolSpace(
  engine: Pick<Engine, "capacity">,
  options: { readonly neededBytes: number; readonly what: string },
): Promise<number> {
  const { neededBytes, what } = options;
  const { diskBytes, diskUsedBytes } = await engine.capacity();
  const freeBytes = Math.max(0, diskBytes - diskUsedBytes);
  if (freeBytes >= neededBytes) return Math.max(0, Math.floor(freeBytes - diskBytes * RESERVED_SHARE));
  throw new HoldfastError(
    "no_space",
    `${what} needs at least ${formatMib(neededBytes)} (${neededBytes} bytes) and the pool has ${formatMib(freeBytes)} (${freeBytes} bytes) free`,
    {
      hint: "Free some space; `holdfast image prune` removes what no image and no sandbox needs.",
      details: { neededBytes, freeBytes },
    },
  );
}

function formatMib(bytes: number): string {
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

import { statSync } from "node:fs";
import { dirname } from "node:path";
import { createLayerId, type Engine } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import type { ImagesContext } from "../context.js";

/** What layers may still take, beside what is left for the sandboxes that run on the same disk. */
const RESERVED_SHARE = 0.02;
const LOOK_EVERY_BYTES = 64 * 1024 * 1024;
/** On small disks so often that what comes in between does not fill them. */
const LOOK_EVERY_SHARE = 0.002;

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

/**
 * Passes content on for as long as the pool has room for it. Others take from the same disk meanwhile, and nobody knows
 * before what a compressed layer comes to; sandboxes do not survive a disk that is full under their pool.
 */
export async function* whileThereIsRoom(
  engine: Pick<Engine, "capacity">,
  content: AsyncIterable<Uint8Array>,
  what: string,
): AsyncGenerator<Uint8Array> {
  let untilLook = 0;
  for await (const chunk of content) {
    if (untilLook <= 0) {
      const { diskBytes } = await engine.capacity();
      await checkPoolSpace(engine, { neededBytes: Math.ceil(diskBytes * RESERVED_SHARE), what });
      untilLook = Math.min(LOOK_EVERY_BYTES, diskBytes * LOOK_EVERY_SHARE);
    }
    untilLook -= chunk.length;
    yield chunk;
  }
}

/** Whether what is written there takes from the disk that layers take from: the pool may be a file of that disk itself. */
export function isOnPoolsDisk(context: ImagesContext, directory: string): boolean {
  const disk = dirname(context.engine.layers.path(createLayerId()));
  const pool = dirname(dirname(disk));
  const disks = [pool, context.stateDirectory].flatMap((path) => statSync(path, { throwIfNoEntry: false })?.dev ?? []);
  return disks.includes(statSync(directory).dev);
}

function formatMib(bytes: number): string {
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

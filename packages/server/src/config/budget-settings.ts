import type { BudgetSettings, WarmSettings } from "@holdfast/engine";
import type { ServerConfig } from "./schema.js";

const MIB = 1024 * 1024;

/** What of the host is kept back and how many times over it is promised, as the engine takes it. */
export function budgetSettings(config: ServerConfig): BudgetSettings {
  const { reserveMemoryMb, reservePids, reserveDiskMb } = config;
  return {
    reserve: {
      ...(reserveMemoryMb === null ? {} : { memoryBytes: reserveMemoryMb * MIB }),
      ...(reservePids === null ? {} : { pids: reservePids }),
      ...(reserveDiskMb === null ? {} : { diskBytes: reserveDiskMb * MIB }),
    },
    overcommit: {
      memoryBytes: config.overcommitMemory,
      pids: config.overcommitPids,
      diskBytes: config.overcommitDisk,
    },
  };
}

/** How long what does not fit now waits for room on the host, unless its request says otherwise. */
export function waitForRoomMs(config: Pick<ServerConfig, "waitForRoomSeconds">): number {
  return config.waitForRoomSeconds * 1000;
}

/** How many sandboxes are kept ready, as the engine takes it. */
export function warmSettings(config: ServerConfig, mayWarm: () => boolean): WarmSettings {
  return {
    mayWarm,
    perShape: config.warmPerShape,
    total: config.warmTotal,
    maxAgeMs: config.warmMaxAgeSeconds * 1000,
    keepFreeShare: config.warmKeepFreePercent / 100,
  };
}

/** Defaults that a small host can carry: what no sandbox asked for must not be what keeps it from being made. */
import type { HostCapacity } from "@holdfast/engine";
import type { Logger } from "pino";
import type { ServerConfig } from "./schema.js";
import { keepSources, sourcesOf } from "./sources.js";

const MIB = 1024 * 1024;
/** So much of the host at most is for a sandbox that asked for nothing. */
const SHARE = 1 / 4;
const LEAST = { sandboxMemoryMb: 32, sandboxPids: 16, sandboxDiskMb: 16 } as const;

export function fitToHost(config: ServerConfig, capacity: HostCapacity, log: Pick<Logger, "info">): ServerConfig {
  const shares = {
    sandboxMemoryMb: (capacity.memoryBytes * SHARE) / MIB,
    sandboxPids: capacity.pids * SHARE,
    sandboxDiskMb: (capacity.diskBytes * SHARE) / MIB,
  };
  const fitted = { ...config };
  for (const name of Object.keys(LEAST) as (keyof typeof LEAST)[]) {
    const most = Math.max(LEAST[name], Math.floor(shares[name]));
    // What the operator has said is the operator's to answer for.
    const isDefault = (sourcesOf(config)[name]?.kind ?? "default") === "default";
    if (config[name] <= most || !isDefault) continue;
    fitted[name] = most;
    log.info({ setting: name, from: config[name], to: most }, "lowered a default: this host is small");
  }
  keepSources(fitted, sourcesOf(config));
  return fitted;
}

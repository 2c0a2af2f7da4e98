/** Defaults that a small host can carry: what no sandbox asked for must not be what keeps it from being made. */
import { type HostCapacity, mostByDefault } from "@holdfast/engine";
import type { Logger } from "pino";
import type { ServerConfig } from "./schema.js";
import { keepSources, sourcesOf } from "./sources.js";

const MIB = 1024 * 1024;

export function fitToHost(config: ServerConfig, capacity: HostCapacity, log: Pick<Logger, "info">): ServerConfig {
  const { memoryBytes, pids, diskBytes } = mostByDefault(capacity);
  const mostOf = {
    sandboxMemoryMb: Math.floor(memoryBytes / MIB),
    sandboxPids: pids,
    sandboxDiskMb: Math.floor(diskBytes / MIB),
  };
  const fitted = { ...config };
  for (const name of Object.keys(mostOf) as (keyof typeof mostOf)[]) {
    const most = mostOf[name];
    // What the operator has said is the operator's to answer for.
    const isDefault = (sourcesOf(config)[name]?.kind ?? "default") === "default";
    if (config[name] <= most || !isDefault) continue;
    fitted[name] = most;
    log.info({ setting: name, from: config[name], to: most }, "lowered a default: this host is small");
  }
  keepSources(fitted, sourcesOf(config));
  return fitted;
}

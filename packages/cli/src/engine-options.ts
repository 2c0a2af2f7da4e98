import { resolve } from "node:path";
import type { PoolKind } from "@holdfast/engine";
import { invalidArgument } from "@holdfast/protocol";

/** The flags of every command that opens the engine. */
export interface EngineFlags {
  readonly stateDir?: string;
  readonly pool?: string;
}

const POOLS: readonly string[] = ["btrfs", "dir"] satisfies PoolKind[];

export function parseEngineFlags(flags: EngineFlags): { readonly stateDirectory?: string; readonly pool?: PoolKind } {
  if (flags.pool !== undefined && !POOLS.includes(flags.pool)) {
    throw invalidArgument("--pool", flags.pool, `one of ${POOLS.join(", ")}`);
  }
  return {
    ...(flags.stateDir === undefined ? {} : { stateDirectory: resolve(flags.stateDir) }),
    ...(flags.pool === undefined ? {} : { pool: flags.pool as PoolKind }),
  };
}

/** Sandboxes that are ready before anybody asks for them: what a caller sees of the warm pool. */
import type { SandboxId } from "@holdfast/protocol";
import type { Amounts } from "./governor/amounts.js";

export interface WarmSettings {
  /** How many of one shape are kept ready; 0 switches the pool off. */
  readonly perShape: number;
  /** How many are kept ready in all; 0 switches the pool off. */
  readonly total: number;
  /** One that was not asked for by then is ended. */
  readonly maxAgeMs: number;
  /** The share of what the host has to give that must stay free beside them, from 0 to 1. */
  readonly keepFreeShare: number;
  /** Whether more may be made now. What is ready stays so. */
  readonly mayWarm?: (() => boolean) | undefined;
}

/** Why a sandbox was made ready and never used. */
export const WASTE_CAUSES = ["age", "unwanted", "evicted", "unhealthy", "drained", "closed"] as const;
export type WasteCause = (typeof WASTE_CAUSES)[number];

export interface WarmStats {
  readonly ready: number;
  /** Made in all, and what became of them: handed out, wasted, or ready still. */
  readonly made: number;
  readonly hits: number;
  /** Asked for when none was ready. */
  readonly misses: number;
  /** Could not be made. */
  readonly failures: number;
  readonly waste: Readonly<Record<WasteCause, number>>;
  /** What those that are ready take of the host's budget. */
  readonly reserved: Amounts;
  /** What they really hold of it. */
  readonly used: { readonly memoryBytes: number; readonly pids: number };
}

/** One that is kept for whoever asked: `Engine.create` makes it theirs, `release` puts it back. Do one of them. */
export interface WarmClaim {
  /** The id that the sandbox has, and will have. */
  readonly id: SandboxId;
  release(): void;
}

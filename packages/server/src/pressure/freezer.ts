/**
 * While the host is short of memory, sandboxes that nobody uses stand still, and so do those of low priority. They keep
 * what they were promised, so their way back is certain: any use of them, or the end of the shortage.
 */
import type { Sandbox } from "@holdfast/engine";
import { HoldfastError, PRIORITY_KEY } from "@holdfast/protocol";
import type { NewEvent, SandboxRow } from "../store/store.js";
import { pressureEvents } from "./pressure-events.js";
import type { SandboxWatch } from "./sandbox-watch.js";

/** Whoever has just asked for something in it is let finish asking, whatever its priority. */
const MOMENT_MS = 2000;

/** What of a sandbox's life is needed here. */
export interface WatchedLife {
  readonly row: SandboxRow;
  readonly sandbox: Sandbox | undefined;
  /** Nobody pauses, resumes or ends it meanwhile. */
  withSandbox<T>(work: (sandbox: Sandbox) => Promise<{ result: T; event: NewEvent }>): Promise<T>;
}

class Changed extends Error {}

/** Why it may be frozen now; undefined if it may not. */
export function whyFreeze(
  life: WatchedLife,
  watch: SandboxWatch,
  options: { readonly idleMs: number; readonly nowMs: number },
): string | undefined {
  const { row, sandbox } = life;
  if (watch.isFrozen || row.status !== "running" || sandbox?.state !== "running") return undefined;
  const sinceUseMs = options.nowMs - watch.usedAtMs;
  if (row.metadata[PRIORITY_KEY] === "low" && sinceUseMs >= Math.min(MOMENT_MS, options.idleMs)) {
    return "its priority is low";
  }
  if (sandbox.gauge.isBusy || Math.min(sinceUseMs, options.nowMs - watch.busyAtMs) < options.idleMs) return undefined;
  return "it is idle";
}

/** False if that was no longer to be done when its turn came. */
export async function freezeFor(
  life: WatchedLife,
  watch: SandboxWatch,
  whyNow: () => string | undefined,
): Promise<boolean> {
  try {
    await life.withSandbox(async (sandbox) => {
      const why = whyNow();
      if (why === undefined) throw new Changed();
      // Whoever comes meanwhile waits, and thaws it.
      watch.isFrozen = true;
      await sandbox.freeze({ keepsPromise: true }).catch((error: unknown) => {
        watch.isFrozen = false;
        throw error;
      });
      return { result: undefined, event: pressureEvents.frozen(why) };
    });
    return true;
  } catch (error) {
    if (error instanceof Changed || hasEnded(error)) return false;
    throw error;
  }
}

/** False if it moves already. */
export async function thawFor(life: WatchedLife, watch: SandboxWatch, why: string): Promise<boolean> {
  try {
    await life.withSandbox(async (sandbox) => {
      // Whoever paused or resumed it meanwhile has decided otherwise.
      const isOurs = watch.isFrozen && life.row.status === "running" && sandbox.state === "frozen";
      if (!isOurs) {
        watch.isFrozen = false;
        throw new Changed();
      }
      // Until it moves, whoever comes waits for us; and if it could not be let go, the next one tries again.
      await sandbox.thaw();
      watch.isFrozen = false;
      return { result: undefined, event: pressureEvents.thawed(why) };
    });
    return true;
  } catch (error) {
    if (error instanceof Changed || hasEnded(error)) return false;
    throw error;
  }
}

function hasEnded(error: unknown): boolean {
  return error instanceof HoldfastError && (error.code === "sandbox_ended" || error.code === "sandbox_paused");
}

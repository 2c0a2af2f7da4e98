/** A sandbox that stops running takes what streams from it along. The client is told why. */
import { setTimeout as sleep } from "node:timers/promises";
import { HoldfastError } from "@holdfast/protocol";
import type { Caller, LiveSandbox, Sandboxes } from "../sandboxes/types.js";
import { valueUntil } from "./until.js";

/** A pause or an end takes a moment from its first sign to its last. */
const SETTLE_MS = 3000;
const LOOK_EVERY_MS = 50;

/** Waits until it is known what has become of the sandbox. */
export async function whyGone(sandboxes: Sandboxes, caller: Caller, id: string): Promise<HoldfastError> {
  const deadline = Date.now() + SETTLE_MS;
  try {
    let row = await sandboxes.find(caller, id);
    while (row.status === "running" && Date.now() < deadline) {
      await sleep(LOOK_EVERY_MS);
      row = await sandboxes.find(caller, id);
    }
    if (row.status === "paused") {
      return new HoldfastError("sandbox_paused", `sandbox ${id} was paused`, { hint: "Resume it, then go on." });
    }
    await sandboxes.findAlive(caller, id);
    return new HoldfastError("sandbox_busy", `sandbox ${id} is being paused, resumed or ended`, {
      hint: "Try again in a moment.",
    });
  } catch (error) {
    return HoldfastError.from(error);
  }
}

/** Waits for work in the sandbox, but not for one that has stopped. */
export async function whileRunning<T>(
  work: Promise<T>,
  at: { readonly sandboxes: Sandboxes; readonly caller: Caller; readonly live: LiveSandbox },
): Promise<T> {
  const { live } = at;
  let result: { readonly value: T } | undefined;
  try {
    result = await valueUntil(
      work.then((value) => ({ value })),
      [live.gone],
    );
  } catch (error) {
    throw live.gone.aborted ? await whyGone(at.sandboxes, at.caller, live.id) : error;
  }
  if (result === undefined) throw await whyGone(at.sandboxes, at.caller, live.id);
  return result.value;
}

/**
 * What each key has in use, against what it may have. Counted in memory and taken before the first await, so that two
 * requests at once cannot both get the last place.
 */
import { formatBytes, HoldfastError } from "@holdfast/protocol";
import type { Caller } from "./types.js";

interface Use {
  sandboxes: number;
  memoryBytes: number;
}

/** A place frees up when a sandbox ends, which nobody can foresee. */
const RETRY_AFTER_SECONDS = 5;

export class KeyBudget {
  readonly #uses = new Map<string, Use>();

  /** Refuses with `limit_reached` and the numbers. */
  take(caller: Caller, keyId: string, memoryBytes: number): void {
    const use = this.#uses.get(keyId) ?? { sandboxes: 0, memoryBytes: 0 };
    if (caller.kind === "key") {
      const { limits } = caller;
      if (limits.sandboxes !== null && use.sandboxes + 1 > limits.sandboxes) {
        throw limitReached(
          `this key may have ${limits.sandboxes} ${limits.sandboxes === 1 ? "sandbox" : "sandboxes"} at once, and has ${use.sandboxes}`,
        );
      }
      if (limits.memoryBytes !== null && use.memoryBytes + memoryBytes > limits.memoryBytes) {
        throw limitReached(
          `this key may have sandboxes of ${formatBytes(limits.memoryBytes)} of memory together; they have ${formatBytes(use.memoryBytes)}, and ${formatBytes(memoryBytes)} more are asked for`,
        );
      }
    }
    this.add(keyId, memoryBytes);
  }

  /** Counts what is there already, whatever the limit says now. */
  add(keyId: string, memoryBytes: number): void {
    const use = this.#uses.get(keyId) ?? { sandboxes: 0, memoryBytes: 0 };
    this.#uses.set(keyId, { sandboxes: use.sandboxes + 1, memoryBytes: use.memoryBytes + memoryBytes });
  }

  /** A sandbox of the key grows or shrinks. */
  change(caller: Caller, keyId: string, byBytes: number): void {
    const use = this.#uses.get(keyId) ?? { sandboxes: 0, memoryBytes: 0 };
    const limit = caller.kind === "key" ? caller.limits.memoryBytes : null;
    if (byBytes > 0 && limit !== null && use.memoryBytes + byBytes > limit) {
      throw limitReached(
        `this key may have sandboxes of ${formatBytes(limit)} of memory together; they have ${formatBytes(use.memoryBytes)}, and ${formatBytes(byBytes)} more are asked for`,
      );
    }
    this.#uses.set(keyId, { ...use, memoryBytes: use.memoryBytes + byBytes });
  }

  free(keyId: string, memoryBytes: number): void {
    const use = this.#uses.get(keyId);
    if (use === undefined) return;
    const left = { sandboxes: use.sandboxes - 1, memoryBytes: use.memoryBytes - memoryBytes };
    if (left.sandboxes <= 0) this.#uses.delete(keyId);
    else this.#uses.set(keyId, left);
  }
}

function limitReached(message: string): HoldfastError {
  return new HoldfastError("limit_reached", message, {
    hint: "Kill sandboxes that are no longer needed (paused ones count), or ask the operator for a key with more.",
    details: { retryAfterSeconds: RETRY_AFTER_SECONDS },
  });
}

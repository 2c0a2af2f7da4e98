/**
 * Freezing a sandbox, thawing it, taking memory back from it and holding it still for a copy of its files, each with what it
 * means for its part of the host's budget. One after the other, and never while its limits change: what is promised always
 * fits what it is doing.
 */
import type { SandboxCgroup } from "../cgroups/index.js";
import type { Admission } from "../governor/types.js";
import type { Launcher } from "../host/launcher.js";
import type { Turns } from "../host/turns.js";
import { reclaimMemory } from "./reclaim.js";
import type { SandboxBudget } from "./sandbox-budget.js";
import type { Standstill } from "./standstill.js";

/** How long the kernel may look for memory to take back. */
const RECLAIM_MS = 1000;

export interface RestParts {
  readonly turns: Turns;
  readonly standstill: Standstill;
  readonly budget: SandboxBudget;
  readonly cgroup: SandboxCgroup;
  readonly launcher: Launcher;
  /** Throws if the sandbox has ended. */
  readonly requireAlive: () => void;
}

export class SandboxRest {
  readonly #parts: RestParts;
  #keepsPromise = false;

  constructor(parts: RestParts) {
    this.#parts = parts;
  }

  freeze(options: { readonly keepsPromise?: boolean } = {}): Promise<void> {
    const { standstill, budget } = this.#parts;
    return this.#interrupting(async () => {
      await standstill.freeze();
      this.#keepsPromise = options.keepsPromise === true;
      if (!this.#keepsPromise) budget.freeze();
    });
  }

  thaw(admission: Admission = {}): Promise<void> {
    const { standstill, budget, requireAlive } = this.#parts;
    return this.#inTurn(async () => {
      await budget.thaw(admission);
      requireAlive();
      await standstill.thaw();
      budget.goOn();
    });
  }

  /** Resolves to the bytes released. */
  reclaim(): Promise<number> {
    const { standstill, budget, cgroup, launcher } = this.#parts;
    return this.#interrupting(async () => {
      const released = await reclaimMemory(launcher, cgroup, { limitMs: RECLAIM_MS });
      if (standstill.isFrozen && !this.#keepsPromise) budget.freeze();
      return released;
    });
  }

  /** Runs `work` while nothing in the sandbox moves, and says for how long; afterwards it is as it was. */
  during<T>(work: () => Promise<T>): Promise<{ readonly result: T; readonly stoodStillMs: number }> {
    return this.#interrupting(() => this.#parts.standstill.during(work));
  }

  /** Whoever waits for room on the host has the turn for as long as that takes; it asks again afterwards. */
  async #interrupting<T>(work: () => Promise<T>): Promise<T> {
    const { budget, standstill } = this.#parts;
    budget.interrupt();
    try {
      return await this.#inTurn(work);
    } finally {
      if (!standstill.isFrozen) budget.goOn();
    }
  }

  /** A failure of what has ended meanwhile is its end. */
  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const { turns, requireAlive } = this.#parts;
    requireAlive();
    try {
      return await turns.take(async () => {
        requireAlive();
        return work();
      });
    } catch (error) {
      requireAlive();
      throw error;
    }
  }
}

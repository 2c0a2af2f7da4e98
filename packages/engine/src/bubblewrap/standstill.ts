/**
 * Whether a sandbox's processes stand still: because somebody froze it, or because we copy its files. Whoever asks for it has the
 * sandbox's turn (sandbox-rest.ts), so that neither undoes what the other does.
 *
 * While it stands still for us alone, a file beside its record says so: whoever adopts it after our sudden death then knows
 * that nobody wanted it frozen.
 */
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { SandboxCgroup } from "../cgroups/index.js";
import type { SandboxRecords } from "./records.js";

export const STANDSTILL_FILE = "standstill";

/** For a sandbox that is being adopted. Whether it is frozen, once what a killed process did to it is undone. */
export async function endForeignStandstill(
  records: SandboxRecords,
  id: SandboxId,
  cgroup: SandboxCgroup,
): Promise<boolean> {
  const mark = records.pathOf(id, STANDSTILL_FILE);
  if (existsSync(mark)) {
    await cgroup.thaw();
    rmSync(mark, { force: true });
  }
  return cgroup.isFrozen();
}

export class Standstill {
  readonly #cgroup: SandboxCgroup;
  readonly #mark: string;
  #frozen: boolean;

  constructor(cgroup: SandboxCgroup, directory: string) {
    this.#cgroup = cgroup;
    this.#mark = `${directory}/${STANDSTILL_FILE}`;
    this.#frozen = cgroup.isFrozen();
  }

  /** Whether somebody froze it; not while it merely stands still for a moment. */
  get isFrozen(): boolean {
    return this.#frozen;
  }

  async freeze(): Promise<void> {
    await this.#cgroup.freeze();
    this.#frozen = true;
  }

  async thaw(): Promise<void> {
    await this.#cgroup.thaw();
    this.#frozen = false;
  }

  /** Runs `work` while nothing in the sandbox moves, and says for how long; afterwards it is as it was. */
  async during<T>(work: () => Promise<T>): Promise<{ readonly result: T; readonly stoodStillMs: number }> {
    const begin = performance.now();
    const result = this.#frozen ? await work() : await this.#heldStill(work);
    return { result, stoodStillMs: performance.now() - begin };
  }

  async #heldStill<T>(work: () => Promise<T>): Promise<T> {
    writeFileSync(this.#mark, "", { mode: 0o600 });
    try {
      await this.#cgroup.freeze();
      return await work();
    } finally {
      await this.#cgroup.thaw().catch((error: unknown) => {
        // It has ended meanwhile: there is nothing left to move.
        if (HoldfastError.from(error).code !== "sandbox_ended") throw error;
      });
      rmSync(this.#mark, { force: true });
    }
  }
}

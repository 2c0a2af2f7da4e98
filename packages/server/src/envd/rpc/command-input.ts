/**
 * Input on its way to commands. A program that does not read holds up whoever writes to it; writers that have given up
 * leave their bytes waiting, and those are counted so that they do not pile up here.
 */
import { HoldfastError } from "@holdfast/protocol";
import type { LiveSandbox } from "../../sandboxes/types.js";

const MOST_WAITING_BYTES = 16 * 1024 * 1024;

export class CommandInput {
  readonly #waiting = new WeakMap<LiveSandbox, Map<number, number>>();

  async write(live: LiveSandbox, commandId: number, bytes: Uint8Array): Promise<void> {
    const waiting = this.#waiting.get(live) ?? new Map<number, number>();
    this.#waiting.set(live, waiting);
    const before = waiting.get(commandId) ?? 0;
    if (before > 0 && before + bytes.length > MOST_WAITING_BYTES) {
      throw new HoldfastError("limit_reached", `${before} bytes of input wait for a command that does not read them`, {
        hint: "Write again when it has read some.",
      });
    }
    waiting.set(commandId, before + bytes.length);
    try {
      await live.commands.writeInput(commandId, bytes);
    } finally {
      const left = (waiting.get(commandId) ?? 0) - bytes.length;
      if (left > 0) waiting.set(commandId, left);
      else waiting.delete(commandId);
    }
  }
}

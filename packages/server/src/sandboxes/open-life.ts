/** How a request comes to the sandbox that it is for: at once, when a change of it is over, or by waking it. */
import { setTimeout as sleep } from "node:timers/promises";
import { HoldfastError } from "@holdfast/protocol";
import type { SandboxRow } from "../store/store.js";
import type { LifeTurns } from "./life-turns.js";
import type { LiveSandbox, Opened } from "./types.js";

/** How long a request waits for a sandbox that is being resumed. */
const PATIENCE_MS = 10_000;

export interface OpenableLife {
  readonly row: SandboxRow;
  /** While it runs and requests may reach it. */
  readonly live: LiveSandbox | undefined;
  readonly turns: LifeTurns;
  resume(): Promise<unknown>;
}

export async function openLife(life: OpenableLife, options: { readonly wake: boolean }): Promise<Opened> {
  const { turns } = life;
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    if (turns.isEnding || life.row.status === "ended") {
      return { kind: "missing", ending: life.row.ending ?? undefined, endedAt: life.row.endedAt ?? undefined };
    }
    if (life.live !== undefined) return { kind: "running", live: life.live };
    // From the moment its connections are cut it is paused to everybody who may not wake it.
    const { autoResume: wakeable } = life.row;
    if (turns.transition !== "resuming" && !(wakeable && options.wake)) {
      return { kind: "paused", wakeable, row: life.row };
    }
    if (Date.now() > deadline) return { kind: "busy" };
    if (turns.transition === undefined) {
      const failure = await life.resume().then(() => undefined, HoldfastError.from);
      if (failure !== undefined && life.row.status === "paused") throw failure;
      // It was resumed, and is not there: another change is on its way.
      if (failure === undefined && life.live === undefined) return { kind: "busy" };
    } else await Promise.race([turns.settled(), sleep(PATIENCE_MS, undefined, { ref: false })]);
  }
}

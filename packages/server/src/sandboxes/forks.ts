/** Copies of a sandbox, made one after the other; what they are there to run comes up in all of them at once. */
import type { ForkPoint } from "@holdfast/images";
import { createSandboxId, HoldfastError } from "@holdfast/protocol";
import type { SandboxRow } from "../store/store.js";
import type { Creations } from "./creations.js";
import type { Caller, Forked } from "./types.js";

type Fork = Forked["forks"][number];

export function lifeFor(timeoutMs: number): Pick<SandboxRow, "createdAt" | "expiresAt"> {
  const createdAt = new Date();
  return { createdAt, expiresAt: new Date(createdAt.getTime() + timeoutMs) };
}

/** A new sandbox like this one, with a life of its own. */
function forkedRow(source: SandboxRow, timeoutMs: number): SandboxRow {
  return {
    ...source,
    id: createSandboxId(),
    status: "creating",
    ...lifeFor(timeoutMs),
    timeoutMs,
    memoryKept: null,
    boots: 1,
    endedAt: null,
    ending: null,
  };
}

/** Each succeeds or fails by itself. */
export async function makeForks(
  creations: Creations,
  options: {
    readonly caller: Caller;
    readonly source: SandboxRow;
    readonly spec: ForkPoint["spec"];
    readonly count: number;
    readonly timeoutMs: number;
    /** How long they may wait for room on the host, all together. */
    readonly waitForRoomMs: number;
  },
): Promise<Fork[]> {
  const { caller, source, spec, count, timeoutMs } = options;
  const deadline = performance.now() + options.waitForRoomMs;
  const forks: Promise<Fork>[] = [];
  for (let index = 0; index < count; index++) {
    const waitForRoomMs = Math.max(0, deadline - performance.now());
    let onBegun: () => void = () => {};
    const begun = new Promise<void>((resolve) => {
      onBegun = resolve;
    });
    const row = forkedRow(source, timeoutMs);
    const fork = creations.make(caller, row, spec, { onBegun, waitForRoomMs, how: "fork" }).then(
      (made): Fork => ({ row: made }),
      (reason): Fork => ({ error: HoldfastError.from(reason) }),
    );
    forks.push(fork);
    await Promise.race([begun, fork]);
  }
  return Promise.all(forks);
}

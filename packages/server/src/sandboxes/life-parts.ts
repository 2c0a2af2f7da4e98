/** What all sandboxes' lives share, and how one of them is let in again. */
import type { Admission, Engine, Sandbox, Waiting } from "@holdfast/engine";
import type { SandboxId } from "@holdfast/protocol";
import type { Logger } from "pino";
import type { Metrics } from "../metrics/metrics.js";
import type { NewEvent, SandboxRow, Store } from "../store/store.js";
import type { EventLog } from "./event-log.js";
import { lifeEvents } from "./life-events.js";
import type { LiveSandbox } from "./types.js";
import { waitingNews } from "./waiting-news.js";

export interface LifeParts {
  /** Starts what the sandbox's image is there to run, if anything, and waits until it is ready. */
  readonly startImage: (live: LiveSandbox) => Promise<void>;
  readonly engine: Engine;
  readonly store: Store;
  readonly events: EventLog;
  readonly log: Logger;
  /** Where delivered offsets are kept. */
  readonly directory: string;
  /** Resolves when another command may be started in it, to what is to be called when that has ended. */
  readonly admitCommand: (id: SandboxId) => Promise<() => void>;
  /** How long a paused one may wait for room on the host to run again. */
  readonly waitForRoomMs: number;
  /** Times how it is made to run again. */
  readonly creating: Metrics["creating"];
  readonly metrics: Pick<Metrics, "held" | "grew" | "shrank">;
}

/** For a sandbox that was paused: it waits behind others of its key, and its events say so. */
export function admissionOf(
  { events, waitForRoomMs }: LifeParts,
  { id, keyId }: SandboxRow,
  more: Pick<Admission, "onWaited" | "signal"> = {},
): Admission {
  const tell = (waiting: Waiting) => {
    events.apply(id, {}, lifeEvents.waiting(waiting)).catch(() => {});
  };
  return { lane: keyId, waitMs: waitForRoomMs, signal: more.signal, ...waitingNews(tell, more.onWaited) };
}

/** What its memory limit goes through is told as it happens. */
export function tellOfMemory({ events, log, metrics }: LifeParts, { id }: SandboxRow, sandbox: Sandbox): void {
  const write = (event: NewEvent) => {
    events.apply(id, {}, event).catch((error: unknown) => {
      log.warn({ sandbox: id, err: error }, "an event could not be written down");
    });
  };
  const news = waitingNews((waiting) => write(lifeEvents.waiting(waiting)));
  sandbox.onMemory((event) => {
    if (event.kind === "waiting") news.onWaiting(event.waiting);
    else if (event.kind === "waited") news.onWaited(event.waited);
    else write(lifeEvents.memory(event));
    if (event.kind === "held") metrics.held();
    if (event.kind === "grown") metrics.grew();
    if (event.kind === "shrunk") metrics.shrank();
  });
}

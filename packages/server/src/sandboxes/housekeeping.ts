/** What is forgotten in time. */
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { Logger } from "pino";
import type { ServerConfig } from "../config/schema.js";
import type { Store } from "../store/store.js";

const HOUR_MS = 3_600_000;
const CLEAN_EVERY_MS = 60_000;
const CLEAN_BATCH = 100;

/** Forgets what ended long ago, again and again. Returns how to stop that. */
export function forgetOldSandboxes(parts: {
  readonly store: Store;
  readonly config: Pick<ServerConfig, "endedRetentionHours">;
  readonly log: Logger;
}): () => void {
  const { store, config, log } = parts;
  const clean = async (): Promise<void> => {
    try {
      const before = new Date(Date.now() - config.endedRetentionHours * HOUR_MS);
      for (const id of await store.sandboxes.endedBefore(before, CLEAN_BATCH)) await store.sandboxes.remove(id);
      await store.idempotency.removeBefore(before);
    } catch (error) {
      log.warn({ error: HoldfastError.from(error).message }, "old sandboxes could not be forgotten");
    }
  };
  const timer = setInterval(() => void clean(), CLEAN_EVERY_MS).unref();
  return () => clearInterval(timer);
}

/** Left by a server that was killed while it ended a sandbox. */
export function removeStrayOffsets(directory: string, isThere: (id: SandboxId) => boolean): void {
  for (const name of readdirSync(directory)) {
    if (!isThere(name as SandboxId)) rmSync(join(directory, name), { force: true });
  }
}

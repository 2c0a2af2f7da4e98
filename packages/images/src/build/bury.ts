/** Sees to what a build has left whose process is gone: it becomes a failed one, and the way is free for the next. */
import { HoldfastError } from "@holdfast/protocol";
import type { ImagesContext } from "../context.js";
import type { BuildId } from "../types.js";
import { type BuildFiles, hasEnded } from "./build-files.js";
import { lostFailure } from "./build-reader.js";

/** Whoever buries takes a moment; if it takes longer, they are gone too. */
const BURIAL_MS = 5000;

/** False if somebody else is at it. */
export async function buryBuild(context: ImagesContext, files: BuildFiles, id: BuildId): Promise<boolean> {
  if (files.exists(id) && !files.bury(id)) {
    const at = files.buriedAtMs(id);
    if (at !== undefined && Date.now() - at < BURIAL_MS) return false;
  }
  const stored = files.read(id);
  if (stored !== undefined && !hasEnded(stored.info)) {
    context.log.info({ build: id }, "the process of a build is gone");
    const failure = lostFailure(stored.info);
    files.write(id, {
      ...stored,
      info: { ...stored.info, state: "failed", endedAt: new Date().toISOString(), failure },
    });
  }
  await discardSandboxes(context, files, id);
  for (const { digest, id: holder } of files.hashes()) if (holder === id) files.releaseHash(digest, id);
  files.releaseLease(id);
  return true;
}

/** Those that run end by themselves or are swept; those that were stopped belong to nobody else. */
async function discardSandboxes({ engine, log }: ImagesContext, files: BuildFiles, id: BuildId): Promise<void> {
  for (const sandbox of files.sandboxesOf(id)) {
    try {
      if (engine.stopped().includes(sandbox)) await engine.discard(sandbox);
      files.forgetSandbox(id, sandbox);
    } catch (error) {
      const { message } = HoldfastError.from(error);
      log.warn(
        { left: "sandbox", build: id, sandbox, error: message },
        "what is left of a build's sandbox could not be removed",
      );
    }
  }
}

/** What every start sees to. Builds that somebody waits for are theirs to take up. */
export async function recoverBuilds(context: ImagesContext, files: BuildFiles): Promise<void> {
  files.sweep();
  for (const id of files.ids()) {
    if (files.hasLease(id)) continue;
    // Those that have ended well have neither, and there may be many of them.
    if (files.wasLeft(id) && !files.hasAskers(id)) await buryBuild(context, files, id);
    else if (!files.wasLeft(id)) await discardSandboxes(context, files, id);
  }
  for (const { digest, id } of files.hashes()) {
    if (id === undefined || !files.exists(id)) files.releaseHash(digest, id);
    else if (!files.hasLease(id) && !files.hasAskers(id)) await buryBuild(context, files, id);
  }
  await context.engine.sweep({ which: "abandoned" });
}

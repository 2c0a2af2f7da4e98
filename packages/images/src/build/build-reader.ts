/** Builds as anybody can read them from their files, of whatever process they are. */
import { HoldfastError } from "@holdfast/protocol";
import type { BuildFailure, BuildId, BuildInfo, BuildLogEntry, ImageRecord, ImageStore } from "../types.js";
import { type BuildFiles, hasEnded, type StoredBuild } from "./build-files.js";
import { readLog } from "./read-log.js";

/** How late a change of another process may be seen. */
const LOOK_MS = 200;

/** Nobody works on it any more, whether or not anybody has written that down. */
export function isOver(files: BuildFiles, id: BuildId): boolean {
  const stored = files.read(id);
  return stored === undefined || hasEnded(stored.info) || !files.hasLease(id);
}

/** One whose process is gone is a failed one. */
export function lostFailure(info: BuildInfo): BuildFailure {
  return {
    step: info.steps.find(({ state }) => state === "running")?.step ?? "base",
    message: "the process that ran this build is gone",
    hint: "Build it again: what was done until then is not done twice.",
    cause: { kind: "lost", why: "the process that ran the build is gone" },
    limitBytes: null,
    peakBytes: null,
    suggestedMemoryMb: null,
    tail: [],
  };
}

export function readInfo(files: BuildFiles, id: BuildId): BuildInfo | undefined {
  const stored = files.read(id);
  if (stored === undefined) return undefined;
  if (!hasEnded(stored.info) && !files.hasLease(id)) {
    const { info } = stored;
    return { ...info, state: "failed", endedAt: info.endedAt ?? info.createdAt, failure: lostFailure(info) };
  }
  return withFollowed(files, stored.info, stored.follows);
}

/** What the one that it waits for is doing; whether it is done, each says for itself. */
export function withFollowed(files: BuildFiles, info: BuildInfo, follows: readonly BuildId[]): BuildInfo {
  const last = follows.at(-1);
  const other = last === undefined || hasEnded(info) ? undefined : files.read(last)?.info;
  if (other === undefined) return info;
  return {
    ...info,
    state: other.state === "waiting" ? "waiting" : "building",
    steps: other.steps,
    startedAt: info.startedAt ?? other.startedAt,
  };
}

export type Ended = StoredBuild | "gone";

/** Until it has ended, or its process has. Rejects with the signal's reason. */
export async function waitForEnd(files: BuildFiles, id: BuildId, signal?: AbortSignal): Promise<Ended> {
  for (;;) {
    signal?.throwIfAborted();
    const since = files.wakes.version(id);
    const stored = files.read(id);
    if (stored === undefined) return "gone";
    if (hasEnded(stored.info)) return stored;
    if (!files.hasLease(id)) {
      // It may have ended between the two looks.
      const last = files.read(id);
      return last !== undefined && hasEnded(last.info) ? last : "gone";
    }
    await files.wakes.changed(id, since, { atMostMs: LOOK_MS, signal });
  }
}

export function buildError(info: BuildInfo): HoldfastError {
  if (info.state === "canceled") return new HoldfastError("canceled", `build ${info.id} was canceled`);
  const { failure } = info;
  return new HoldfastError("build_failed", failure?.message ?? `build ${info.id} has failed`, {
    hint: failure?.hint ?? undefined,
    details: failure === null ? {} : { ...failure },
  });
}

export function imageOf(store: ImageStore, info: BuildInfo): ImageRecord {
  const record = info.imageId === null ? undefined : store.get(info.imageId);
  if (record !== undefined) return record;
  throw new HoldfastError("image_not_found", `the image of build ${info.id} has been removed`, {
    hint: "Build it again.",
  });
}

/** Its own entries, then those of the builds that it has waited for, numbered on. */
export async function* readBuildLog(
  files: BuildFiles,
  id: BuildId,
  options: { readonly from: number; readonly signal?: AbortSignal | undefined },
): AsyncGenerator<BuildLogEntry> {
  const { signal } = options;
  let before = 0;
  for (let index = 0; ; index++) {
    const part = await partAt(files, id, index, signal);
    if (part === undefined) return;
    const log = readLog(files.pathOf(part), {
      from: Math.max(0, options.from - before),
      isComplete: () => partsOf(files, id).length > index + 1 || isOver(files, part),
      prepareWait: () => {
        const since = files.wakes.version(part);
        return () => files.wakes.changed(part, since, { atMostMs: LOOK_MS, signal });
      },
      signal,
    });
    let next = await log.next();
    try {
      for (; next.done !== true; next = await log.next()) {
        yield before === 0 ? next.value : { ...next.value, seq: next.value.seq + before };
      }
    } finally {
      // The reader of this one may have gone in the middle.
      await log.return(0);
    }
    if (signal?.aborted === true || next.done !== true) return;
    before += next.value;
  }
}

function partsOf(files: BuildFiles, id: BuildId): readonly BuildId[] {
  return [id, ...(files.read(id)?.follows ?? [])];
}

async function partAt(
  files: BuildFiles,
  id: BuildId,
  index: number,
  signal: AbortSignal | undefined,
): Promise<BuildId | undefined> {
  while (signal?.aborted !== true) {
    const since = files.wakes.version(id);
    // Before the list is read: what is added to it is added while it goes on.
    const over = isOver(files, id);
    const part = partsOf(files, id)[index];
    if (part !== undefined || over) return part;
    await files.wakes.changed(id, since, { atMostMs: LOOK_MS, signal });
  }
  return undefined;
}

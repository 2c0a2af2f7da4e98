/** What is left of builds: their logs, which are kept for as long as an image of theirs is. */
import { lstatSync } from "node:fs";
import { join } from "node:path";
import { readClaims } from "./claims.js";
import { isBuildId } from "./ids.js";
import type { StoreParts } from "./parts.js";
import { namesIn } from "./whole-files.js";

export interface RemovedBuilds {
  readonly builds: number;
  readonly freedBytes: number;
}

export const NO_BUILD: RemovedBuilds = { builds: 0, freedBytes: 0 };

/** Unless it still goes on, or another image came of it. */
export function removeBuild(parts: StoreParts, id: string): RemovedBuilds {
  if (livingBuilds(parts).has(id) || buildsWithImages(parts).has(id)) return NO_BUILD;
  return discardBuild(parts, id);
}

/** Those without an image in which nothing has happened since then. */
export function pruneBuilds(parts: StoreParts, idleSinceMs: number): RemovedBuilds {
  const living = livingBuilds(parts);
  const kept = buildsWithImages(parts);
  let [builds, freedBytes] = [0, 0];
  for (const id of namesIn(parts.path("builds"))) {
    if (!isBuildId(id) || living.has(id) || kept.has(id)) continue;
    if (lookAt(parts.path("builds", id)).changedAtMs > idleSinceMs) continue;
    const removed = discardBuild(parts, id);
    builds += removed.builds;
    freedBytes += removed.freedBytes;
  }
  return { builds, freedBytes };
}

export function livingBuilds(parts: StoreParts): Set<string> {
  return new Set([...readClaims(parts.directory).living.values()].flat().filter(isBuildId));
}

function buildsWithImages(parts: StoreParts): Set<string> {
  return new Set(parts.images().flatMap(({ buildId }) => buildId ?? []));
}

function discardBuild(parts: StoreParts, id: string): RemovedBuilds {
  const path = parts.path("builds", id);
  const { sizeBytes } = lookAt(path);
  return parts.files.discard(path) ? { builds: 1, freedBytes: sizeBytes } : NO_BUILD;
}

/** Its size, and when anything in it was last written. */
function lookAt(path: string): { readonly sizeBytes: number; readonly changedAtMs: number } {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return { sizeBytes: 0, changedAtMs: 0 };
  if (!stats.isDirectory()) return { sizeBytes: stats.size, changedAtMs: stats.mtimeMs };
  const below = namesIn(path).map((name) => lookAt(join(path, name)));
  return {
    sizeBytes: below.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    changedAtMs: Math.max(stats.mtimeMs, ...below.map(({ changedAtMs }) => changedAtMs)),
  };
}

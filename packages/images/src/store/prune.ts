/** Removing what nobody needs, and what killed processes have left. */
import { rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { type LayerId, parseLayerId } from "@holdfast/engine";
import { sweepPartialFiles } from "../registry/partial-file.js";
import { sweepScratch } from "../scratch/scratch.js";
import type { ImageId, PruneReport } from "../types.js";
import { dropDeadClaims, markGoing, readClaims, readDeadMarks } from "./claims.js";
import type { Holdings } from "./garbage.js";
import type { StoreParts } from "./parts.js";
import { layersOf } from "./records.js";
import { livingBuilds, pruneBuilds } from "./remove-build.js";
import { dropImageRecords, rememberUsers, removeLayers } from "./remove-image.js";

export interface PruneOptions {
  /** Also cached steps and images without a name, however young. */
  readonly all?: boolean;
  /** With `all` too it spares what is younger, or was used since. */
  readonly unusedForMs?: number;
}

const DAY_MS = 24 * 3600_000;
const DEFAULT_UNUSED_MS = 14 * DAY_MS;
/** With `all`: blobs are uploaded and builds are promised before they are needed. */
const SPARE_MS = 3600_000;
/** A build that goes on is heard of every few seconds. */
const SILENT_MS = 60_000;

/** Temporary files and scratch directories of processes that are gone, and downloads that nobody has come back for. */
export async function sweepTemporary(parts: StoreParts): Promise<void> {
  parts.files.sweep();
  for (const directory of new Set([parts.scratchDirectory, parts.path("scratch")])) {
    sweepScratch(directory);
    await sweepPartialFiles(directory);
  }
}

export function hasAbandoned(parts: StoreParts): boolean {
  return readDeadMarks(parts.directory).length > 0 || readClaims(parts.directory).abandoned.size > 0;
}

/** Layers that killed processes had claimed or begun to remove, and that nobody needs. Under the store's lock. */
export async function removeAbandoned(
  parts: StoreParts,
): Promise<{ readonly layers: LayerId[]; readonly freedBytes: number }> {
  const marks = readDeadMarks(parts.directory);
  const abandoned = new Set([...readClaims(parts.directory).abandoned, ...marks.flatMap(({ id }) => layerIds(id))]);
  const holdings = parts.holdings();
  const garbage = [...abandoned].filter((layer) => !holdings.holds(layer));
  markGoing(parts.directory, garbage);
  const removed = await removeLayers(parts, garbage);
  // Last: until here they say what was to go, whoever is killed.
  for (const { path } of marks) rmSync(path, { force: true });
  dropDeadClaims(parts.directory);
  return removed;
}

/** Under the store's lock. */
export async function pruneStore(parts: StoreParts, options: PruneOptions = {}): Promise<PruneReport> {
  const now = Date.now();
  const all = options.all === true;
  const unusedSinceMs = now - (options.unusedForMs ?? (all ? 0 : DEFAULT_UNUSED_MS));
  const spareSinceMs = now - (options.unusedForMs ?? (all ? SPARE_MS : DEFAULT_UNUSED_MS));
  await sweepTemporary(parts);
  const abandoned = await removeAbandoned(parts);
  dropLostNames(parts);
  const released = new Set(dropSteps(parts, unusedSinceMs));
  const holdings = parts.holdings();
  const images = all ? dropUnnamed(parts, holdings, { unusedSinceMs, released }) : [];
  const garbage = parts.layers
    .list()
    .filter((layer) => !holdings.holds(layer) && (released.has(layer) || isPastGrace(parts, layer, now)));
  markGoing(parts.directory, garbage);
  const removed = await removeLayers(parts, garbage);
  dropLostLayerRecords(parts, now);
  // A build that goes on may need any blob that is there.
  const blobsSinceMs = livingBuilds(parts).size > 0 ? Math.min(spareSinceMs, now - DAY_MS) : spareSinceMs;
  const blobs = parts.blobs.prune(blobsSinceMs);
  const builds = pruneBuilds(parts, Math.min(spareSinceMs, now - SILENT_MS));
  return {
    images,
    layers: [...abandoned.layers, ...removed.layers],
    blobs: blobs.blobs,
    builds: builds.builds,
    freedBytes: abandoned.freedBytes + removed.freedBytes + blobs.freedBytes + builds.freedBytes,
  };
}

/** Cached steps that nobody has used since then, those whose layer is gone, and those that say nothing. */
function dropSteps(parts: StoreParts, unusedSinceMs: number): LayerId[] {
  return parts.readSteps().flatMap((step) => {
    const isNewer = step.value === undefined && step.isNewer;
    const isLost = step.value === undefined || !parts.layers.has(step.value.layer);
    if (isNewer || (!isLost && step.usedAtMs > unusedSinceMs)) return [];
    rmSync(step.path, { force: true });
    return step.value === undefined ? step.mentions : [step.value.layer];
  });
}

/** Removes the records of images without a name; the layers that they alone had are then `released`, and marked. */
function dropUnnamed(
  parts: StoreParts,
  holdings: Holdings,
  options: { readonly unusedSinceMs: number; readonly released: Set<LayerId> },
): ImageId[] {
  const named = namedImages(parts);
  const unnamed = holdings.forgetUnnamed({
    isNamed: (id) => named.has(id),
    users: rememberUsers(parts),
    createdBeforeMs: options.unusedSinceMs,
  });
  const layers = unnamed.flatMap(layersOf).filter((layer) => !holdings.holds(layer));
  for (const layer of layers) options.released.add(layer);
  markGoing(parts.directory, [...layers, ...unnamed.map(({ id }) => id)]);
  // Whoever names one of them from here on sees that it is going.
  const namedNow = namedImages(parts);
  const ids = unnamed.map(({ id }) => id).filter((id) => !namedNow.has(id));
  dropImageRecords(parts, ids);
  return ids;
}

function namedImages(parts: StoreParts): Set<ImageId> {
  return new Set(parts.names.list().map(({ imageId }) => imageId));
}

/** Names whose image is gone: somebody was killed between removing the one and the other. */
function dropLostNames(parts: StoreParts): void {
  for (const name of parts.names.list()) {
    if (parts.readImage(name.imageId) === undefined) parts.names.removeFrom(name, name.imageId);
  }
}

/** Records of layers that are not there; whoever makes one may write its record first. */
function dropLostLayerRecords(parts: StoreParts, now: number): void {
  const holdings = parts.holdings();
  for (const { name, path, usedAtMs } of parts.readLayers()) {
    const [id] = layerIds(name.replace(/\.json$/, ""));
    const isNeeded = id !== undefined && (parts.layers.has(id) || holdings.holds(id));
    if (!isNeeded && now - usedAtMs > parts.graceMs) rmSync(path, { force: true });
  }
}

/** Its files may be older than the layer; the directory around them is renamed when it is made. */
function isPastGrace(parts: StoreParts, layer: LayerId, now: number): boolean {
  const path = parts.layers.path(layer);
  const times = [path, dirname(path)].flatMap((each) => statSync(each, { throwIfNoEntry: false })?.ctimeMs ?? []);
  return times.length > 0 && now - Math.max(...times) >= parts.graceMs;
}

function layerIds(text: string): LayerId[] {
  try {
    return [parseLayerId(text)];
  } catch {
    // The mark of an image, or nothing of ours.
    return [];
  }
}

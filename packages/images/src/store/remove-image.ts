import { rmSync } from "node:fs";
import type { LayerId } from "@holdfast/engine";
import { HoldfastError, type SandboxId } from "@holdfast/protocol";
import type { ImageId, PruneReport } from "../types.js";
import { markGoing, unmarkGoing } from "./claims.js";
import { errorFromFile } from "./file-error.js";
import { type ImageUses, isUsed, type LayerUsers } from "./garbage.js";
import type { StoreParts } from "./parts.js";
import { NO_BUILD, removeBuild } from "./remove-build.js";
import { syncDirectory } from "./whole-files.js";

/** Asks once for each layer. Whether it still holds is for the engine to say when the layer is to go. */
export function rememberUsers(parts: StoreParts): LayerUsers {
  const known = new Map<LayerId, readonly SandboxId[]>();
  return (layer) => {
    const users = known.get(layer) ?? parts.layers.users(layer);
    known.set(layer, users);
    return users;
  };
}

/** Under the store's lock. */
export async function removeImage(parts: StoreParts, id: ImageId): Promise<PruneReport> {
  const read = parts.readImage(id);
  if (read === undefined)
    throw new HoldfastError("image_not_found", `there is no image ${id}`, { details: { image: id } });
  if (read.value === undefined) return removeDamaged(parts, id, read);
  const record = read.value;
  const holdings = parts.holdings();
  const uses = holdings.usesOf(record, rememberUsers(parts));
  if (isUsed(uses)) throw inUse(id, uses);
  const layers = holdings.layersFreedWith(record);
  markGoing(parts.directory, layers);
  dropImageRecords(parts, [id]);
  const build = record.buildId === null ? NO_BUILD : removeBuild(parts, record.buildId);
  const removed = await removeLayers(parts, layers);
  return {
    images: [id],
    layers: removed.layers,
    blobs: 0,
    builds: build.builds,
    freedBytes: removed.freedBytes + build.freedBytes,
  };
}

/** From here on they are gone, whatever happens; names that stand for nothing are not seen by anybody. */
export function dropImageRecords(parts: StoreParts, ids: readonly ImageId[]): void {
  if (ids.length === 0) return;
  try {
    for (const id of ids) rmSync(parts.imagePath(id), { force: true });
    syncDirectory(parts.path("records"));
  } catch (error) {
    throw errorFromFile(error, `removing ${ids.length === 1 ? `image ${ids[0]}` : "images"}`);
  }
  const gone = new Set(ids);
  for (const name of parts.names.list()) if (gone.has(name.imageId)) parts.names.removeFrom(name, name.imageId);
}

/**
 * Removes those layers that nobody needs; they are marked as going already. Under the store's lock. One that is needed after
 * all stays; it is looked for again when things are pruned.
 */
export async function removeLayers(
  parts: StoreParts,
  candidates: Iterable<LayerId>,
): Promise<{ readonly layers: LayerId[]; readonly freedBytes: number }> {
  const holdings = parts.holdings();
  const layers: LayerId[] = [];
  let freedBytes = 0;
  for (const layer of candidates) {
    try {
      if (holdings.holds(layer)) continue;
      const sizeBytes = await sizeIfKnown(parts, layer);
      const wasThere = parts.layers.has(layer);
      await parts.layers.remove(layer);
      rmSync(parts.layerRecordPath(layer), { force: true });
      if (!wasThere) continue;
      layers.push(layer);
      freedBytes += sizeBytes;
    } catch (error) {
      const reason = HoldfastError.from(error);
      // A sandbox stands on it, perhaps since a moment ago.
      if (reason.code !== "image_in_use") {
        parts.log.warn(
          { left: "layer", layer, error: reason.message },
          "a layer that nobody needs could not be removed",
        );
      }
    } finally {
      unmarkGoing(parts.directory, layer);
    }
  }
  return { layers, freedBytes };
}

/** A layer that cannot be measured can still be removed. */
async function sizeIfKnown(parts: StoreParts, layer: LayerId): Promise<number> {
  try {
    return (
      parts.readLayer(layer)?.value?.sizeBytes ?? (parts.layers.has(layer) ? await parts.layers.sizeBytes(layer) : 0)
    );
  } catch {
    return 0;
  }
}

function removeDamaged(
  parts: StoreParts,
  id: ImageId,
  read: { readonly isNewer: boolean; readonly problem: string },
): PruneReport {
  if (read.isNewer) {
    throw new HoldfastError("image_invalid", `image ${id} cannot be removed: ${read.problem}`, {
      hint: "It was written by a later version of Holdfast; use that one.",
      details: { image: id },
    });
  }
  // What it stood on is found by whoever prunes: the record does not say it reliably.
  dropImageRecords(parts, [id]);
  return { images: [id], layers: [], blobs: 0, builds: 0, freedBytes: 0 };
}

function inUse(id: ImageId, uses: ImageUses): HoldfastError {
  const reasons = [
    ["sandbox", uses.sandboxes],
    ["image", uses.images],
    ["build", uses.builds],
  ] as const;
  const by = reasons
    .filter(([, ids]) => ids.length > 0)
    .map(
      ([what, ids]) => `${what} ${ids.slice(0, 3).join(", ")}${ids.length > 3 ? ` and ${ids.length - 3} more` : ""}`,
    );
  return new HoldfastError("image_in_use", `image ${id} is in use by ${by.join("; ")}`, {
    hint: "End those sandboxes and builds, and remove the images that were made on it, first.",
    details: { image: id, sandboxes: uses.sandboxes, images: uses.images, builds: uses.builds },
  });
}

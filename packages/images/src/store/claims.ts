/**
 * Claims say that somebody is about to need a layer that no record names yet, or not for much longer:
 *
 *   builds/<buildId>/layers/<layerId>.<pid>.<ticks>.<boot>   by a build
 *   claims/<holder>/<layerId>.<pid>.<ticks>.<boot>           by anybody else
 *   going/<layerId>.<pid>.<ticks>.<boot>                     the opposite: somebody is about to remove it
 *
 * Nobody has to wait for anybody. Whoever wants to use a layer claims it first and then looks whether it is going; whoever
 * wants to remove it marks it as going first and then looks for claims and records. So at least one of the two sees the
 * other, and gives way. A claim is let go only when a record stands in its place, and claims are read before records: a layer
 * that passes from one to the other is seen in at least one place.
 *
 * A claim or mark counts for as long as the process lives that made it.
 */
import { closeSync, mkdirSync, openSync, rmdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { LayerId, Layers } from "@holdfast/engine";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { ImageId, ImageRecord } from "../types.js";
import { errorFromFile, isMissing } from "./file-error.js";
import { isBuildId } from "./ids.js";
import { isTagOfLiving, processTag } from "./process-tag.js";
import { layersOf } from "./records.js";
import { namesIn } from "./whole-files.js";

const MAX_TRIES = 100;

export interface Claims {
  /** Who claims it. Living processes only. */
  readonly living: ReadonlyMap<LayerId, readonly string[]>;
  /** Whose makers were killed before they could put it into a record. */
  readonly abandoned: ReadonlySet<LayerId>;
}

/**
 * Keeps a layer, made or about to be made, from being taken for garbage until `releaseClaims`. `holder` is the build's id, or
 * a name of one's own. Returns false, and claims nothing, if it is just being removed: then it counts as gone.
 */
export function claimLayer(directory: string, holder: string, layer: LayerId): boolean {
  const place = placeOf(directory, holder);
  const path = join(place, `${layer}.${processTag()}`);
  makeEmptyFile(path);
  if (!isGoing(directory, layer)) return true;
  rmSync(path, { force: true });
  return false;
}

/** Claims all that an image stands on. `image_not_found` if it is being removed, or part of it is gone. */
export function claimImage(options: {
  readonly directory: string;
  readonly layers: Pick<Layers, "has">;
  readonly holder: string;
  readonly record: Pick<ImageRecord, "id" | "layers" | "disk">;
}): void {
  const { directory, layers, holder, record } = options;
  for (const layer of layersOf(record)) {
    if (claimLayer(directory, holder, layer) && layers.has(layer)) continue;
    throw new HoldfastError("image_not_found", `image ${record.id} is being removed, or its layer ${layer} is gone`, {
      details: { image: record.id, layer },
    });
  }
}

/** Lets go of all claims that this process has made for the holder. After the record is written and the name is set. */
export function releaseClaims(directory: string, holder: string): void {
  const place = placeOf(directory, holder);
  const ours = `.${processTag()}`;
  for (const name of namesIn(place)) if (name.endsWith(ours)) rmSync(join(place, name), { force: true });
  removeIfEmpty(place);
}

export function readClaims(directory: string): Claims {
  const living = new Map<LayerId, string[]>();
  const abandoned = new Set<LayerId>();
  const isLiving = rememberingLiving();
  for (const { holder, place } of claimPlaces(directory)) {
    for (const { id, tag } of namesIn(place).flatMap(splitName)) {
      if (isLiving(tag)) living.set(id as LayerId, [...(living.get(id as LayerId) ?? []), holder]);
      else abandoned.add(id as LayerId);
    }
  }
  return { living, abandoned };
}

/** Removes the claims of processes that are gone. What they claimed is garbage unless a record names it. */
export function dropDeadClaims(directory: string): void {
  const isLiving = rememberingLiving();
  for (const { place } of claimPlaces(directory)) {
    for (const name of namesIn(place)) {
      const [split] = splitName(name);
      if (split === undefined || !isLiving(split.tag)) rmSync(join(place, name), { recursive: true, force: true });
    }
    removeIfEmpty(place);
  }
}

export function markGoing(directory: string, ids: Iterable<LayerId | ImageId>): void {
  for (const id of ids) makeEmptyFile(join(directory, "going", `${id}.${processTag()}`));
}

export function unmarkGoing(directory: string, id: LayerId | ImageId): void {
  rmSync(join(directory, "going", `${id}.${processTag()}`), { force: true });
}

/** Those of this process. Under the store's lock, when nothing of it is going any more. */
export function unmarkAllGoing(directory: string): void {
  const ours = `.${processTag()}`;
  for (const name of namesIn(join(directory, "going"))) {
    if (name.endsWith(ours)) rmSync(join(directory, "going", name), { force: true });
  }
}

export function isGoing(directory: string, id: LayerId | ImageId): boolean {
  return namesIn(join(directory, "going"))
    .flatMap(splitName)
    .some((mark) => mark.id === id && isTagOfLiving(mark.tag));
}

/** Marks whose makers were killed before they had removed what they marked. */
export function readDeadMarks(directory: string): { readonly id: string; readonly path: string }[] {
  const isLiving = rememberingLiving();
  return namesIn(join(directory, "going")).flatMap((name) => {
    const [mark] = splitName(name);
    if (mark !== undefined && isLiving(mark.tag)) return [];
    return [{ id: mark?.id ?? "", path: join(directory, "going", name) }];
  });
}

function placeOf(directory: string, holder: string): string {
  if (isBuildId(holder)) return join(directory, "builds", holder, "layers");
  if (!/^[a-z0-9][a-z0-9.-]{0,99}$/.test(holder)) {
    throw invalidArgument("holder", holder, "a build's id, or 1 to 100 lower-case letters, digits, `-` and `.`");
  }
  return join(directory, "claims", holder);
}

function claimPlaces(directory: string): { readonly holder: string; readonly place: string }[] {
  return [
    ...namesIn(join(directory, "builds")).map((holder) => ({
      holder,
      place: join(directory, "builds", holder, "layers"),
    })),
    ...namesIn(join(directory, "claims")).map((holder) => ({ holder, place: join(directory, "claims", holder) })),
  ];
}

function splitName(name: string): { readonly id: string; readonly tag: string }[] {
  const match = /^([a-z0-9]+)\.(\d+\.\d+\.[0-9a-f]{12})$/.exec(name);
  return match?.[1] === undefined || match[2] === undefined ? [] : [{ id: match[1], tag: match[2] }];
}

/** Asks the kernel once for each process. */
function rememberingLiving(): (tag: string) => boolean {
  const known = new Map<string, boolean>();
  return (tag) => {
    const isLiving = known.get(tag) ?? isTagOfLiving(tag);
    known.set(tag, isLiving);
    return isLiving;
  };
}

function makeEmptyFile(path: string): void {
  const directory = join(path, "..");
  for (let tries = 1; ; tries++) {
    try {
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      closeSync(openSync(path, "w", 0o600));
      return;
    } catch (error) {
      // Another process has just removed the directory as empty.
      if (!isMissing(error) || tries === MAX_TRIES) throw errorFromFile(error, `claiming ${path}`);
    }
  }
}

function removeIfEmpty(directory: string): void {
  try {
    rmdirSync(directory);
  } catch {
    // Others' claims are in it, or it is gone already.
  }
}

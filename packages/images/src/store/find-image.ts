/** From what a person types to an image they may see. */
import { HoldfastError } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import type { ImageId, ImageRecord, Owner } from "../types.js";
import { isImageId } from "./ids.js";
import type { StoreParts } from "./parts.js";
import { isVisible } from "./records.js";
import { DEFAULT_TAGS, formatImageName, parseImageReference } from "./reference.js";

const MIN_DIGITS = 12;
const MAX_LISTED = 10;
const DIGITS = /^(?:sha256:)?([0-9a-f]{12,64})$/;
const TOO_FEW_DIGITS = /^sha256:[0-9a-f]*$/;

export function findImage(parts: StoreParts, reference: string, owner: Owner): ImageRecord | undefined {
  if (isImageId(reference)) {
    const record = parts.readImage(reference)?.value;
    if (record !== undefined) return isVisible(record.owner, owner) ? record : undefined;
  }
  const digits = typeof reference === "string" ? DIGITS.exec(reference)?.[1] : undefined;
  if (digits !== undefined) {
    const found = findByDigest(parts, digits, owner);
    if (found !== undefined || reference.startsWith("sha256:")) return found;
  } else if (typeof reference === "string" && TOO_FEW_DIGITS.test(reference)) {
    throw new HoldfastError("invalid_argument", `image ${reference}: a digest needs ${MIN_DIGITS} to 64 digits`, {
      details: { field: "image" },
    });
  }
  const { name, tag, digest } = parseImageReference(reference);
  if (digest !== undefined) return findByDigest(parts, digest.slice("sha256:".length), owner);
  const id = findName(parts, { name, tag }, owner);
  const record = id === undefined ? undefined : parts.readImage(id)?.value;
  return record !== undefined && isVisible(record.owner, owner) ? record : undefined;
}

export function requireImage(parts: StoreParts, reference: string, owner: Owner): ImageRecord {
  const record = findImage(parts, reference, owner);
  if (record === undefined) throw whyNotFound(parts, reference, owner);
  const [missing] = parts.missingLayers(record);
  if (missing === undefined) return record;
  throw new HoldfastError("image_invalid", `image ${reference} is broken: the files of its layer ${missing} are gone`, {
    hint: `Remove it with \`holdfast image rm ${reference}\` and build or import it again.`,
    details: { image: record.id, missingLayers: parts.missingLayers(record) },
  });
}

/** The image a name stands for. The owner's own names come first; one whose image is gone counts as not there. */
function findName(
  parts: StoreParts,
  { name, tag }: { readonly name: string; readonly tag: string | undefined },
  owner: Owner,
): ImageId | undefined {
  for (const holder of owner === null ? [null] : [owner, null]) {
    for (const candidate of tag === undefined ? DEFAULT_TAGS : [tag]) {
      const named = parts.names.get({ owner: holder, name, tag: candidate });
      if (named !== undefined && parts.readImage(named.imageId) !== undefined) return named.imageId;
    }
  }
  return undefined;
}

/** Several images may be the same by content: then the owner's own, and of those the newest. */
function findByDigest(parts: StoreParts, digits: string, owner: Owner): ImageRecord | undefined {
  const found = parts
    .images()
    .filter((record) => isVisible(record.owner, owner) && record.digest.startsWith(`sha256:${digits}`))
    .sort(
      (a, b) =>
        Number(b.owner === owner) - Number(a.owner === owner) || Date.parse(b.createdAt) - Date.parse(a.createdAt),
    );
  const candidates: Digest[] = [...new Set(found.map(({ digest }) => digest))].sort();
  if (candidates.length > 1) {
    throw new HoldfastError(
      "invalid_argument",
      `image ${digits}: several digests begin like this: ${candidates.slice(0, MAX_LISTED).join(", ")}`,
      { hint: "Give more of its digits.", details: { field: "image", candidates } },
    );
  }
  return found[0];
}

function whyNotFound(parts: StoreParts, reference: string, owner: Owner): HoldfastError {
  const damaged = findDamaged(parts, reference, owner);
  if (damaged !== undefined) return damaged;
  const names = parts.names
    .list(owner)
    .filter(({ imageId }) => parts.readImage(imageId) !== undefined)
    .map(formatImageName);
  const known = [...new Set(names)].sort();
  const more = known.length > MAX_LISTED ? ` and ${known.length - MAX_LISTED} more` : "";
  return new HoldfastError("image_not_found", `there is no image ${JSON.stringify(reference)}`, {
    hint:
      known.length === 0
        ? "There are no named images yet. Make one with `holdfast build` or `holdfast image import`."
        : `There are ${known.slice(0, MAX_LISTED).join(", ")}${more}.`,
    details: { image: reference, known: known.slice(0, MAX_LISTED) },
  });
}

/** It is there, but its record cannot be understood. Whose it was is in the record: only a name tells, or being the operator. */
function findDamaged(parts: StoreParts, reference: string, owner: Owner): HoldfastError | undefined {
  let id: ImageId | undefined;
  if (isImageId(reference)) {
    const names = parts.names.list(owner).some(({ imageId }) => imageId === reference);
    if (owner === null || names) id = reference;
  } else if (!DIGITS.test(reference)) {
    const { name, tag } = parseImageReference(reference);
    id = findName(parts, { name, tag }, owner);
  }
  const read = id === undefined ? undefined : parts.readImage(id);
  if (read === undefined || read.value !== undefined) return undefined;
  return new HoldfastError("image_invalid", `the record of image ${reference} cannot be read: ${read.problem}`, {
    hint: read.isNewer
      ? "It was written by a later version of Holdfast; use that one."
      : `Remove it with \`holdfast image rm ${id}\` and build or import it again.`,
    details: { image: id, path: read.path },
  });
}

import { DEFAULT_TAGS, parseImageReference } from "../store/reference.js";
import type { ImageName } from "../types.js";

/** Of an image's names the one that it was asked for by: what leaves is called that. None if it was an id or a digest. */
export function namesAskedFor(names: readonly ImageName[], reference: string): ImageName[] {
  const { name, tag, digest } = parseImageReference(reference);
  if (digest !== undefined) return [];
  for (const wanted of tag === undefined ? DEFAULT_TAGS : [tag]) {
    const found = names.find((known) => known.name === name && known.tag === wanted);
    if (found !== undefined) return [found];
  }
  return [];
}

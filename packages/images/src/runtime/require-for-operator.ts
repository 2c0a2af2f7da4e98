import { HoldfastError } from "@holdfast/protocol";
import type { ImageId, ImageRecord, ImageStore } from "../types.js";

/** By id anybody's; by name the operator's own, or else that of the one key which has an image of that name. */
export function requireForOperator(store: ImageStore, reference: string): ImageRecord {
  const byId = store.get(reference as ImageId);
  if (byId !== undefined) return store.require(byId.id, byId.owner);
  if (store.find(reference, null) !== undefined) return store.require(reference, null);
  const owners = new Set(store.list().map(({ owner }) => owner));
  const found = new Map<string, ImageRecord>();
  for (const owner of owners) {
    const record = owner === null ? undefined : store.find(reference, owner);
    if (record !== undefined) found.set(record.id, record);
  }
  const [only] = found.values();
  // What there is instead is in the error.
  if (only === undefined) return store.require(reference, null);
  if (found.size === 1) return store.require(only.id, only.owner);
  const candidates = [...found.values()].map(({ id, owner }) => `${id} (of ${owner})`);
  throw new HoldfastError(
    "invalid_argument",
    `image: several keys have an image called ${reference}: ${candidates.join(", ")}`,
    { hint: "Name it by its id.", details: { field: "image", candidates: [...found.keys()] } },
  );
}

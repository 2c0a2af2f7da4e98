import { rmSync } from "node:fs";
import { join } from "node:path";
import type { ImageId, ImageName, ImageRecord, ImageStore } from "../types.js";
import { checkImageName } from "./reference.js";

/** Writes an image and its names, or nothing: an image that nobody can call by what it was to be called is of no use. */
export function putNamed(store: ImageStore, record: ImageRecord, names: readonly ImageName[]): void {
  for (const name of names) checkImageName(name);
  const before = names.map((name) => ({ name, imageId: holderOf(store, name) }));
  store.put(record);
  try {
    for (const name of names) store.setName(name, record.id);
  } catch (error) {
    for (const { name, imageId } of before) if (imageId !== undefined) setBack(store, name, imageId);
    // Names that still stand for it stand for nothing now, which is the same as not being there.
    rmSync(join(store.directory, "records", `${record.id}.json`), { force: true });
    throw error;
  }
}

function holderOf(store: ImageStore, wanted: ImageName): ImageId | undefined {
  return store
    .names({ owner: wanted.owner })
    .find(({ name }) => name.owner === wanted.owner && name.name === wanted.name && name.tag === wanted.tag)?.imageId;
}

function setBack(store: ImageStore, name: ImageName, imageId: ImageId): void {
  try {
    store.setName(name, imageId);
  } catch {
    // What kept us from setting the new one keeps us from this too.
  }
}

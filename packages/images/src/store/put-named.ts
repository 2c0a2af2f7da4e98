import { rmSync } from "node:fs";
import { join } from "node:path";
import type { ImageId, ImageName, ImageRecord, ImageStore } from "../types.js";
import { checkImageName } from "./reference.js";

/**
 * Writes an image and its names, or nothing: an image that nobody can call by what it was to be called is of no use. One that
 * was there before stays as it was.
 */
export function putNamed(store: ImageStore, record: ImageRecord, names: readonly ImageName[]): void {
  for (const name of names) checkImageName(name);
  const before = names.map((name) => ({ name, imageId: holderOf(store, name) }));
  const earlier = store.get(record.id);
  store.put(record);
  try {
    for (const name of names) store.setName(name, record.id);
  } catch (error) {
    for (const { name, imageId } of before) {
      // Those that were not reached, or that somebody else has taken meanwhile, are not ours to change.
      if (imageId === record.id || holderOf(store, name) !== record.id) continue;
      attempt(() => (imageId === undefined ? store.removeName(name) : store.setName(name, imageId)));
    }
    if (earlier !== undefined) attempt(() => store.put(earlier));
    else rmSync(join(store.directory, "records", `${record.id}.json`), { force: true });
    throw error;
  }
}

function holderOf(store: ImageStore, wanted: ImageName): ImageId | undefined {
  return store
    .names({ owner: wanted.owner })
    .find(({ name }) => name.owner === wanted.owner && name.name === wanted.name && name.tag === wanted.tag)?.imageId;
}

function attempt(work: () => unknown): void {
  try {
    work();
  } catch {
    // What kept us from the new keeps us from the old, too.
  }
}

/** An image of this machine, with the sizes that take a look at all the others. */
import type { ImageRecord, ImageStore } from "@holdfast/images";
import type { ImageInfo } from "@holdfast/protocol";

export async function describeImage(store: ImageStore, record: ImageRecord): Promise<ImageInfo> {
  const { imageInfo } = await import("@holdfast/images");
  return imageInfo(store, record, { viewer: null, sizes: await store.sizes(record) });
}

/** The blobs that a recipe needs, each once. Contents stay where they are until they are sent. */
import { canonicalJson } from "./canonical-json.js";
import { digestOfBytes } from "./digest.js";
import type { Digest } from "./recipe.js";
import type { BlobSource, Tree } from "./tree.js";

export class BlobList {
  readonly #sources = new Map<Digest, BlobSource>();

  add(source: BlobSource): Digest {
    if (!this.#sources.has(source.digest)) this.#sources.set(source.digest, source);
    return source.digest;
  }

  async addBytes(bytes: Uint8Array): Promise<Digest> {
    return this.add({
      digest: await digestOfBytes(bytes),
      sizeBytes: bytes.length,
      open: () =>
        new ReadableStream<Uint8Array>({
          start(controller) {
            if (bytes.length > 0) controller.enqueue(bytes);
            controller.close();
          },
        }),
    });
  }

  /** The tree's own blob; those of its files are added by whoever has them. */
  async addTree(tree: Tree): Promise<Digest> {
    return this.addBytes(new TextEncoder().encode(canonicalJson(tree)));
  }

  list(): BlobSource[] {
    return [...this.#sources.values()];
  }
}

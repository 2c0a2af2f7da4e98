import { utimesSync } from "node:fs";
import { type LayerId, parseLayerId, withHostLock } from "@holdfast/engine";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import type {
  BlobStore,
  ImageId,
  ImageName,
  ImageRecord,
  ImageSizes,
  ImageStore,
  LayerRecord,
  NamedImage,
  Owner,
  PruneReport,
} from "../types.js";
import { claimLayer, isGoing, releaseClaims, unmarkAllGoing } from "./claims.js";
import { findImage, requireImage } from "./find-image.js";
import { isImageId, parseImageId } from "./ids.js";
import { type ImageStoreOptions, StoreParts } from "./parts.js";
import { uniqueName } from "./process-tag.js";
import { hasAbandoned, type PruneOptions, pruneStore, removeAbandoned, sweepTemporary } from "./prune.js";
import { isVisible, layersOf, namedImageOf, wrongFieldOfImage, wrongFieldOfLayer } from "./records.js";
import { checkImageName, formatImageName, parseDigest } from "./reference.js";
import { removeImage } from "./remove-image.js";

export interface StoreProblem {
  readonly path: string;
  readonly problem: string;
}

export class FileImageStore implements ImageStore {
  readonly #parts: StoreParts;
  readonly blobs: BlobStore;

  constructor(options: ImageStoreOptions) {
    this.#parts = new StoreParts(options);
    this.blobs = this.#parts.blobs;
  }

  get directory(): string {
    return this.#parts.directory;
  }

  get(id: ImageId): ImageRecord | undefined {
    return isImageId(id) ? this.#parts.readImage(id)?.value : undefined;
  }

  /** Newest first. */
  list(options: { readonly owner?: Owner } = {}): ImageRecord[] {
    return this.#parts
      .images()
      .filter((record) => isVisible(record.owner, options.owner))
      .sort((a, b) => Date.parse(b.createdAt) - Date.parse(a.createdAt) || (a.id < b.id ? -1 : 1));
  }

  put(record: ImageRecord): void {
    const wrong = wrongFieldOfImage(record);
    if (wrong !== undefined) {
      throw new HoldfastError("invalid_argument", `image record: ${wrong} is missing or not what it has to be`, {
        details: { field: wrong },
      });
    }
    this.#holding(layersOf(record), `image ${record.id}`, () =>
      this.#parts.files.write(this.#parts.imagePath(record.id), JSON.stringify(record), { durable: true }),
    );
  }

  find(reference: string, owner: Owner): ImageRecord | undefined {
    return findImage(this.#parts, reference, owner);
  }

  require(reference: string, owner: Owner): ImageRecord {
    return requireImage(this.#parts, reference, owner);
  }

  setName(name: ImageName, imageId: ImageId): void {
    checkImageName(name);
    const record = this.get(parseImageId(imageId));
    if (record === undefined) throw noImage(imageId);
    if (record.owner !== null && record.owner !== name.owner) {
      // Its name would show it to people who may not know of it.
      throw new HoldfastError(
        "access_denied",
        `image ${imageId} is another's: it cannot be named ${formatImageName(name)}`,
        {
          details: { image: imageId },
        },
      );
    }
    if (this.#parts.names.get(name)?.imageId !== imageId) this.#parts.names.set(name, imageId);
    // It may have been removed meanwhile, by somebody who saw no name; claims.ts says why this order is enough.
    if (!isGoing(this.directory, imageId) && this.get(imageId) !== undefined) return;
    this.#parts.names.removeFrom(name, imageId);
    throw noImage(imageId);
  }

  removeName(name: ImageName): boolean {
    checkImageName(name);
    return this.#parts.names.remove(name);
  }

  names(options: { readonly owner?: Owner; readonly imageId?: ImageId } = {}): NamedImage[] {
    return this.#parts.names
      .list(options.owner)
      .filter(({ imageId }) => options.imageId === undefined || imageId === options.imageId)
      .filter(({ imageId }) => this.#parts.readImage(imageId) !== undefined)
      .map(namedImageOf)
      .sort((a, b) => (formatImageName(a.name) < formatImageName(b.name) ? -1 : 1));
  }

  async remove(id: ImageId): Promise<PruneReport> {
    parseImageId(id);
    return this.#locked(() => removeImage(this.#parts, id));
  }

  async sizes(record: ImageRecord): Promise<ImageSizes> {
    const freed = new Set(this.#parts.holdings().layersFreedWith(record));
    let [totalBytes, uniqueBytes] = [0, 0];
    for (const layer of new Set(layersOf(record))) {
      const sizeBytes = await this.#parts.layerSizeBytes(layer);
      totalBytes += sizeBytes;
      if (freed.has(layer)) uniqueBytes += sizeBytes;
    }
    return { totalBytes, uniqueBytes, sharedBytes: totalBytes - uniqueBytes };
  }

  layer(id: LayerId): LayerRecord | undefined {
    return this.#parts.readLayer(parseLayerId(id))?.value;
  }

  layerByDiffId(diffId: Digest): LayerRecord | undefined {
    return this.#parts
      .readLayers()
      .flatMap(({ value }) => value ?? [])
      .find(({ id, diffId: known }) => known === diffId && this.#isThere(id));
  }

  putLayer(record: LayerRecord): void {
    const wrong = wrongFieldOfLayer(record);
    if (wrong !== undefined) {
      throw new HoldfastError("invalid_argument", `layer record: ${wrong} is missing or not what it has to be`, {
        details: { field: wrong },
      });
    }
    this.#parts.files.write(this.#parts.layerRecordPath(record.id), JSON.stringify(record), { durable: true });
  }

  cachedStep(chain: Digest): LayerId | undefined {
    const step = this.#parts.readStep(stepName(chain));
    if (step?.value === undefined || !this.#isThere(step.value.layer)) return undefined;
    try {
      const now = Date.now() / 1000;
      utimesSync(step.path, now, now);
    } catch {
      // It was removed as unused while we looked.
      return undefined;
    }
    return step.value.layer;
  }

  cacheStep(chain: Digest, layer: LayerId): void {
    const path = this.#parts.path("steps", stepName(chain));
    this.#holding([parseLayerId(layer)], "a cached step", () =>
      // After a loss of power the step may have to be run again; that is all.
      this.#parts.files.write(path, JSON.stringify({ version: 1, chain, layer }), { durable: false }),
    );
  }

  async prune(options: PruneOptions = {}): Promise<PruneReport> {
    const { unusedForMs } = options;
    if (unusedForMs !== undefined && !(typeof unusedForMs === "number" && unusedForMs >= 0)) {
      throw invalidArgument("unusedForMs", unusedForMs, "a number of milliseconds, 0 or more");
    }
    return this.#locked(() => pruneStore(this.#parts, options));
  }

  async recover(): Promise<void> {
    await sweepTemporary(this.#parts);
    if (hasAbandoned(this.#parts)) await this.#locked(() => removeAbandoned(this.#parts));
  }

  /** Layers that it stands on and that are not there: then nothing can be made of it. */
  missingLayers(record: ImageRecord): LayerId[] {
    return this.#parts.missingLayers(record);
  }

  /** Files that cannot be understood and are passed over. */
  problems(): StoreProblem[] {
    const read = [...this.#parts.readImages(), ...this.#parts.readLayers(), ...this.#parts.readSteps()];
    return [
      ...read.flatMap((record) => (record.value === undefined ? [{ path: record.path, problem: record.problem }] : [])),
      ...this.#parts.names.problems(),
    ];
  }

  #isThere(layer: LayerId): boolean {
    return this.#parts.layers.has(layer) && !isGoing(this.directory, layer);
  }

  /** Writes what will need these layers, so that nobody removes them meanwhile and none of them is gone already. */
  #holding(layers: readonly LayerId[], what: string, write: () => void): void {
    const holder = `put.${uniqueName()}`;
    try {
      for (const layer of new Set(layers)) {
        if (!claimLayer(this.directory, holder, layer)) {
          throw new HoldfastError("image_in_use", `${what}: its layer ${layer} is just being removed`, {
            hint: "Nobody had claimed it. Make it again.",
            details: { layer },
          });
        }
        if (!this.#parts.layers.has(layer)) {
          throw new HoldfastError("image_invalid", `${what}: there is no layer ${layer}`, { details: { layer } });
        }
      }
      write();
    } finally {
      releaseClaims(this.directory, holder);
    }
  }

  /** For whoever removes. One at a time: two that each spare what the other is about to free would free nothing. */
  #locked<T>(work: () => Promise<T>): Promise<T> {
    return withHostLock(this.#parts.path("lock"), async () => {
      try {
        return await work();
      } finally {
        // Whatever went wrong: what is still there is not going.
        unmarkAllGoing(this.directory);
      }
    });
  }
}

/** Opens the images of a state directory. Several processes may have it open. */
export function openImageStore(options: ImageStoreOptions): FileImageStore {
  return new FileImageStore(options);
}

const stepName = (chain: Digest): string => parseDigest(chain, "chain").slice("sha256:".length);

const noImage = (id: ImageId): HoldfastError =>
  new HoldfastError("image_not_found", `there is no image ${id}`, { details: { image: id } });

/**
 * As which blobs a layer has come from registries or gone to them, so that it need not be packed again to find out that a
 * registry has it. Only ever a saving of work: whoever finds nothing here packs the layer.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { LayerId, Layers } from "@holdfast/engine";
import type { Digest } from "@holdfast/recipe";
import { type Compression, isCompression } from "../layers/compression.js";
import { isDigest } from "../layers/digest.js";
import { isTagOfLiving, tagOfUniqueName, uniqueName } from "../store/process-tag.js";

export interface KnownBlob {
  readonly digest: Digest;
  readonly diffId: Digest;
  readonly sizeBytes: number;
  readonly compression: Compression;
  /** `registry/repository`, the last first. */
  readonly places: readonly string[];
}

const LAYER = /^l[a-z0-9]{20}$/;
const MAX_BLOBS = 8;
const MAX_PLACES = 8;

export class KnownBlobs {
  readonly #directory: string;

  constructor(storeDirectory: string) {
    this.#directory = join(storeDirectory, "registry-blobs");
  }

  of(layer: LayerId): KnownBlob[] {
    try {
      const { blobs } = JSON.parse(readFileSync(this.#path(layer), "utf8")) as { blobs: unknown[] };
      return blobs.filter(isKnownBlob);
    } catch {
      // Not there, or not readable: the same as not known.
      return [];
    }
  }

  add(layer: LayerId, blob: Omit<KnownBlob, "places">, place: string): void {
    const others = this.of(layer);
    const known = others.find(({ digest }) => digest === blob.digest);
    if (known?.places[0] === place) return;
    const places = [place, ...(known?.places ?? []).filter((other) => other !== place)].slice(0, MAX_PLACES);
    const blobs = [{ ...blob, places }, ...others.filter((other) => other !== known)].slice(0, MAX_BLOBS);
    try {
      mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
      const fresh = join(this.#directory, `${uniqueName()}.tmp`);
      writeFileSync(fresh, JSON.stringify({ version: 1, blobs }), { mode: 0o600 });
      renameSync(fresh, this.#path(layer));
    } catch {
      // A disk that is full now is the trouble of those who must write.
    }
  }

  /** Forgets layers that are gone. */
  sweep(layers: Pick<Layers, "has">): void {
    if (!existsSync(this.#directory)) return;
    for (const name of readdirSync(this.#directory)) {
      const [, base = "", ending] = /^(.*)\.(json|tmp)$/.exec(name) ?? [];
      const isKept =
        ending === "tmp" ? isTagOfLiving(tagOfUniqueName(base) ?? "") : LAYER.test(base) && layers.has(base as LayerId);
      if (!isKept) rmSync(join(this.#directory, name), { force: true });
    }
  }

  #path(layer: LayerId): string {
    return join(this.#directory, `${layer}.json`);
  }
}

function isKnownBlob(value: unknown): value is KnownBlob {
  const blob = Object(value) as Partial<Record<keyof KnownBlob, unknown>>;
  return (
    isDigest(blob.digest) &&
    isDigest(blob.diffId) &&
    Number.isSafeInteger(blob.sizeBytes) &&
    isCompression(blob.compression) &&
    Array.isArray(blob.places) &&
    blob.places.every((place) => typeof place === "string")
  );
}

/** What the parts of the store share: where things lie and how they are read. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { LayerId, Layers, Log } from "@holdfast/engine";
import type { ImageId, ImageRecord, LayerRecord } from "../types.js";
import { FileBlobStore } from "./blobs.js";
import { readClaims } from "./claims.js";
import { Holdings } from "./garbage.js";
import { NameFiles } from "./names.js";
import { type ReadRecord, RecordReader } from "./record-reader.js";
import { layersOf, parseImageRecord, parseLayerRecord, parseStepRecord, type StepRecord } from "./records.js";
import { WholeFiles } from "./whole-files.js";

export interface ImageStoreOptions {
  readonly stateDirectory: string;
  readonly layers: Layers;
  /** For temporary files; what killed processes left there is removed. The store's own `scratch` if absent. */
  readonly scratchDirectory?: string | undefined;
  readonly log?: Log | undefined;
  /** How long a layer that no record and no claim names is left alone: whoever makes one may not have got further yet. */
  readonly graceMs?: number | undefined;
  /** The largest blob. */
  readonly maxBlobBytes?: number | undefined;
}

const DEFAULT_GRACE_MS = 10 * 60_000;
const silentLog: Log = { info: () => {}, warn: () => {} };

export class StoreParts {
  readonly directory: string;
  readonly scratchDirectory: string;
  readonly layers: Layers;
  readonly log: Log;
  readonly graceMs: number;
  readonly files: WholeFiles;
  readonly names: NameFiles;
  readonly blobs: FileBlobStore;
  readonly #images: RecordReader<ImageRecord>;
  readonly #layers: RecordReader<LayerRecord>;
  readonly #steps: RecordReader<StepRecord>;

  constructor(options: ImageStoreOptions) {
    const log = options.log ?? silentLog;
    this.directory = join(options.stateDirectory, "images");
    this.scratchDirectory = options.scratchDirectory ?? this.path("scratch");
    this.layers = options.layers;
    this.log = log;
    this.graceMs = options.graceMs ?? DEFAULT_GRACE_MS;
    for (const name of ["records", "names", "layers", "steps", "builds", "claims", "going", "scratch"]) {
      mkdirSync(this.path(name), { recursive: true, mode: 0o700 });
    }
    this.files = new WholeFiles(this.path("tmp"));
    this.names = new NameFiles({ directory: this.path("names"), files: this.files, log });
    this.blobs = new FileBlobStore({
      directory: this.path("blobs"),
      files: this.files,
      maxBytes: options.maxBlobBytes ?? Number.POSITIVE_INFINITY,
    });
    this.#images = new RecordReader({ parse: parseImageRecord, what: "the record of an image", log });
    this.#layers = new RecordReader({ parse: parseLayerRecord, what: "the record of a layer", log });
    this.#steps = new RecordReader({ parse: parseStepRecord, what: "a cached step", log });
  }

  path(...names: string[]): string {
    return join(this.directory, ...names);
  }

  imagePath(id: ImageId): string {
    return this.path("records", `${id}.json`);
  }

  layerRecordPath(id: LayerId): string {
    return this.path("layers", `${id}.json`);
  }

  readImage(id: ImageId): ReadRecord<ImageRecord> | undefined {
    return this.#images.read(this.path("records"), `${id}.json`);
  }

  readImages(): ReadRecord<ImageRecord>[] {
    return this.#images.readAll(this.path("records"));
  }

  images(): ImageRecord[] {
    return this.readImages().flatMap(({ value }) => value ?? []);
  }

  readLayer(id: LayerId): ReadRecord<LayerRecord> | undefined {
    return this.#layers.read(this.path("layers"), `${id}.json`);
  }

  readLayers(): ReadRecord<LayerRecord>[] {
    return this.#layers.readAll(this.path("layers"));
  }

  readStep(name: string): ReadRecord<StepRecord> | undefined {
    return this.#steps.read(this.path("steps"), name);
  }

  readSteps(): ReadRecord<StepRecord>[] {
    return this.#steps.readAll(this.path("steps"));
  }

  /** Who needs what, now. Claims are read first; claims.ts says why. */
  holdings(): Holdings {
    const { living } = readClaims(this.directory);
    const images = this.readImages();
    const steps = this.readSteps();
    return new Holdings({
      images: images.flatMap(({ value }) => value ?? []),
      steps: new Set(steps.flatMap(({ value }) => value?.layer ?? [])),
      claims: living,
      unclear: new Set([...images, ...steps].flatMap((read) => (read.value === undefined ? read.mentions : []))),
    });
  }

  /** What is written down, or else measured and written down. */
  async layerSizeBytes(id: LayerId): Promise<number> {
    const known = this.readLayer(id)?.value;
    if (known !== undefined) return known.sizeBytes;
    if (!this.layers.has(id)) return 0;
    const sizeBytes = await this.layers.sizeBytes(id);
    // Whoever makes the layer may have written its record meanwhile, and knows more of it.
    if (this.readLayer(id) === undefined && this.layers.has(id)) {
      const record: LayerRecord = {
        version: 1,
        id,
        createdAt: new Date().toISOString(),
        diffId: null,
        sizeBytes,
        from: "unknown",
      };
      this.files.write(this.layerRecordPath(id), JSON.stringify(record), { durable: false });
    }
    return sizeBytes;
  }

  /** Layers that it stands on and that are not there. */
  missingLayers(record: ImageRecord): LayerId[] {
    return layersOf(record).filter((layer) => !this.layers.has(layer));
  }
}

/** An image as blobs and the documents that name them, in the same order and with the same bytes every time. */
import { createReadStream } from "node:fs";
import type { LayerId } from "@holdfast/engine";
import type { Digest } from "@holdfast/recipe";
import type { ImagesContext } from "../context.js";
import { type Compression, compressed } from "../layers/compression.js";
import { DigestMeter, digestOf } from "../layers/digest.js";
import { packIntoFile } from "../layers/pack-into-file.js";
import { type Packed, type PackedChunks, packChunks } from "../layers/pack-layer.js";
import { packedDigest, rememberPacked } from "../layers/packed-digest.js";
import { type OnProgress, ProgressCounter } from "../layers/progress.js";
import type { Scratch } from "../scratch/scratch.js";
import { formatImageName } from "../store/reference.js";
import type { ImageName, ImageRecord } from "../types.js";
import { type BlobContent, type BlobFacts, type BlobWriter, blobName } from "./blob-writers.js";
import { configOf, type ExportedLayer } from "./config.js";
import { spool } from "./spool.js";
import { CONTAINERD_NAME, type Descriptor, MEDIA_TYPES, ociLayerMediaType, REF_NAME } from "./types.js";

const READ_BYTES = 256 * 1024;

export interface WriteImageOptions {
  /** Also what `docker load` reads. */
  readonly isForDocker: boolean;
  readonly compression: Compression;
  readonly names: readonly ImageName[];
  /** For a writer that has to know what a blob is before it comes. */
  readonly openScratch: () => Promise<Scratch>;
  readonly totalBytes: number | null;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
}

export interface WrittenImage {
  readonly configDigest: Digest;
  readonly manifestDigest: Digest;
}

/** Lowest first. What a snapshot has of its own is the uppermost. */
export function layersToExport(record: Pick<ImageRecord, "layers" | "disk">): LayerId[] {
  return [...record.layers].reverse().concat(record.disk === null ? [] : [record.disk]);
}

export async function writeImage(
  context: ImagesContext,
  record: ImageRecord,
  writer: BlobWriter,
  options: WriteImageOptions,
): Promise<WrittenImage> {
  const { compression, names } = options;
  const what = names[0] === undefined ? record.id : formatImageName(names[0]);
  const { onProgress, totalBytes } = options;
  const counter = new ProgressCounter({ onProgress, phase: "write", what, totalBytes });
  const blobs: BlobFacts[] = [];
  const layers: ExportedLayer[] = [];
  for (const id of layersToExport(record)) {
    const { blob, diffId } = await writeLayer(context, id, writer, options, counter);
    blobs.push(blob);
    layers.push({ diffId, record: context.store.layer(id) ?? { createdAt: record.createdAt, from: "layer" } });
  }
  const config = await writeDocument(writer, configOf(record, layers));
  const manifest = await writeDocument(writer, {
    schemaVersion: 2,
    mediaType: MEDIA_TYPES.ociManifest,
    config: { mediaType: MEDIA_TYPES.ociConfig, digest: config.digest, size: config.sizeBytes },
    layers: blobs.map(({ digest, sizeBytes }) => ({
      mediaType: ociLayerMediaType(compression),
      digest,
      size: sizeBytes,
    })),
  });
  const descriptor: Descriptor = {
    mediaType: MEDIA_TYPES.ociManifest,
    digest: manifest.digest,
    size: manifest.sizeBytes,
    platform: { architecture: record.config.architecture, os: record.config.os },
  };
  await writer.file("oci-layout", json({ imageLayoutVersion: "1.0.0" }));
  await writer.file("index.json", json(indexOf(descriptor, names)));
  if (options.isForDocker) {
    const images = [
      {
        Config: blobName(config.digest),
        RepoTags: names.map(formatImageName),
        Layers: blobs.map(({ digest }) => blobName(digest)),
      },
    ];
    await writer.file("manifest.json", json(images));
  }
  await writer.end();
  counter.end();
  return { configDigest: config.digest, manifestDigest: manifest.digest };
}

function json(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value));
}

/** One entry for each name, as tools expect it; one without if it has none. */
function indexOf(descriptor: Descriptor, names: readonly ImageName[]) {
  const named = names.map((name) => ({
    ...descriptor,
    annotations: { [CONTAINERD_NAME]: fullName(name), [REF_NAME]: formatImageName(name) },
  }));
  return {
    schemaVersion: 2,
    mediaType: MEDIA_TYPES.ociIndex,
    manifests: named.length === 0 ? [descriptor] : named,
  };
}

/** With the registry that a name without one stands for. */
function fullName(name: ImageName): string {
  const text = formatImageName(name);
  const first = text.split("/")[0] ?? "";
  if (!text.includes("/")) return `docker.io/library/${text}`;
  return /[.:]/.test(first) || first === "localhost" ? text : `docker.io/${text}`;
}

async function writeDocument(writer: BlobWriter, document: unknown): Promise<BlobFacts> {
  const bytes = json(document);
  const facts: BlobFacts = { digest: digestOf(bytes), sizeBytes: bytes.length };
  await writer.blob({ content: only(bytes), facts: async () => facts }, facts);
  return facts;
}

async function* only(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

interface WrittenLayer {
  readonly blob: BlobFacts;
  readonly diffId: Digest;
}

async function writeLayer(
  context: ImagesContext,
  id: LayerId,
  writer: BlobWriter,
  options: WriteImageOptions,
  counter: ProgressCounter,
): Promise<WrittenLayer> {
  const { compression, signal } = options;
  if (compression === "none" && writer.appended !== undefined) {
    const blob = await writer.appended(async (place) => {
      const packed = await packIntoFile(context, id, { ...place, signal, onBytes: (bytes) => counter.add(bytes) });
      rememberPacked(context, id, packed);
      return { digest: packed.diffId, sizeBytes: packed.sizeBytes };
    });
    return { blob, diffId: blob.digest };
  }
  if (!writer.needsFactsFirst) {
    const content = layerContent(context, id, { compression, signal, counter });
    const blob = await writer.blob(content);
    return { blob, diffId: await content.diffId() };
  }
  if (compression === "none") {
    const { diffId, sizeBytes } = await packedDigest(context, id, { signal, onProgress: options.onProgress });
    const facts: BlobFacts = { digest: diffId, sizeBytes };
    if (writer.has(diffId)) return { blob: facts, diffId };
    const content = layerContent(context, id, { compression, signal, counter, keeps: true });
    return { blob: await writer.blob(content, facts), diffId };
  }
  const scratch = await options.openScratch();
  try {
    const content = layerContent(context, id, { compression, signal, counter });
    const { path } = await spool(content.content, { scratch, name: "blob", what: `layer ${id}`, signal });
    const facts = await content.facts();
    if (writer.has(facts.digest)) return { blob: facts, diffId: await content.diffId() };
    const bytes = fileContent(path);
    const blob = await writer.blob({ content: bytes, facts: async () => facts }, facts);
    return { blob, diffId: await content.diffId() };
  } finally {
    await scratch.close();
  }
}

/** Not in buffers that are used again: who knows how long somebody else's stream keeps what it was given. */
async function* fileContent(path: string): AsyncGenerator<Uint8Array> {
  yield* createReadStream(path, { highWaterMark: READ_BYTES }) as AsyncIterable<Uint8Array>;
}

function layerContent(
  context: ImagesContext,
  id: LayerId,
  options: {
    readonly compression: Compression;
    readonly signal: AbortSignal | undefined;
    readonly counter: ProgressCounter;
    /** Chunks are the reader's to keep. */
    readonly keeps?: boolean;
  },
): BlobContent & { diffId(): Promise<Digest> } {
  const { compression, signal, counter, keeps = false } = options;
  let packed: PackedChunks | undefined;
  // Nothing is started before somebody reads: then whoever stops reading stops it.
  async function* plain(): AsyncGenerator<Uint8Array> {
    packed = packChunks(context, id, { signal });
    for await (const chunk of packed.chunks) {
      counter.add(chunk.length);
      yield keeps ? Buffer.from(chunk) : chunk;
    }
    rememberPacked(context, id, await packed.result);
  }
  const result = (): Promise<Packed> => {
    if (packed === undefined) throw new Error("the layer has not been read");
    return packed.result;
  };
  const diffId = async (): Promise<Digest> => (await result()).diffId;
  if (compression === "none") {
    const facts = async (): Promise<BlobFacts> => ({ digest: await diffId(), sizeBytes: (await result()).sizeBytes });
    return { content: plain(), diffId, facts };
  }
  const meter = new DigestMeter();
  let known: BlobFacts | undefined;
  return {
    content: metered(compressed(plain(), compression, { what: `layer ${id}`, signal }), meter),
    diffId,
    facts: async () => {
      known ??= { digest: meter.digest(), sizeBytes: meter.sizeBytes };
      return known;
    },
  };
}

async function* metered(content: AsyncIterable<Uint8Array>, meter: DigestMeter): AsyncGenerator<Uint8Array> {
  for await (const chunk of content) {
    meter.add(chunk);
    yield chunk;
  }
}

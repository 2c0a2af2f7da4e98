/** One layer of an image into a registry, unless it is there. */
import { createReadStream } from "node:fs";
import { rm } from "node:fs/promises";
import { Readable } from "node:stream";
import type { LayerId } from "@holdfast/engine";
import type { Digest } from "@holdfast/recipe";
import type { ImagesContext } from "../context.js";
import { type Compression, compressed } from "../layers/compression.js";
import { DigestMeter, shortDigest } from "../layers/digest.js";
import { measureLayer, type PackedLayer, packLayer } from "../layers/pack-layer.js";
import { knownPacked, rememberPacked } from "../layers/packed-digest.js";
import { type OnProgress, ProgressCounter } from "../layers/progress.js";
import { spool } from "../oci/spool.js";
import type { Scratch } from "../scratch/scratch.js";
import type { LayerRecord } from "../types.js";
import type { RegistryClient } from "./http.js";
import type { KnownBlob, KnownBlobs } from "./known-blobs.js";
import type { RegistryReference } from "./reference.js";
import { hasBlob, mountBlob, type UploadReport, uploadBlob } from "./upload.js";

export interface Push {
  readonly context: ImagesContext;
  readonly client: RegistryClient;
  readonly reference: RegistryReference;
  readonly compression: Compression;
  readonly scratch: Scratch;
  readonly known: KnownBlobs;
  readonly onProgress: OnProgress | undefined;
}

type Blob = Omit<KnownBlob, "places">;

export interface PushedLayer extends UploadReport {
  readonly blob: Blob;
  readonly record: Pick<LayerRecord, "createdAt" | "from">;
}

const READ_BYTES = 256 * 1024;

export async function pushLayer(push: Push, layer: LayerId, signal: AbortSignal): Promise<PushedLayer> {
  const { context, client, reference, known } = push;
  const stored = context.store.layer(layer);
  const record = stored ?? { createdAt: new Date(0).toISOString(), from: "layer" };
  const place = `${client.registry}/${reference.repository}`;
  const there = await findThere(push, layer, signal);
  if (there !== undefined) {
    known.add(layer, there.blob, place);
    return { ...there, record };
  }
  const prepared = await prepare(push, layer, signal);
  try {
    const isThere =
      prepared.known !== undefined && (await hasBlob(client, reference.repository, prepared.known.digest, signal));
    const report = isThere ? ({ how: "present", sentBytes: 0 } as const) : await upload(push, layer, prepared, signal);
    const blob = await prepared.blob();
    if (stored?.diffId === null) context.store.putLayer({ ...stored, diffId: blob.diffId });
    known.add(layer, blob, place);
    return { blob, ...report, record };
  } finally {
    await prepared.close();
  }
}

/** By what is known of it from earlier, without packing it. */
async function findThere(
  { client, reference, known, compression }: Push,
  layer: LayerId,
  signal: AbortSignal,
): Promise<Omit<PushedLayer, "record"> | undefined> {
  const { repository } = reference;
  for (const { places, ...blob } of known.of(layer)) {
    if (blob.compression !== compression) continue;
    if (await hasBlob(client, repository, blob.digest, signal)) return { blob, how: "present", sentBytes: 0 };
    for (const place of places) {
      const from = place.startsWith(`${client.registry}/`) ? place.slice(client.registry.length + 1) : repository;
      if (from === repository) continue;
      if (await mountBlob(client, repository, { digest: blob.digest, from }, signal)) {
        return { blob, how: "mounted", sentBytes: 0 };
      }
    }
  }
  return undefined;
}

interface Prepared {
  readonly sizeBytes: number;
  /** Undefined if that comes out only while it is sent. */
  readonly known: Blob | undefined;
  open(start: number): Readable;
  /** When all of it has been sent. */
  blob(): Promise<Blob>;
  close(): Promise<void>;
}

/** What the layer is as a blob, and where its bytes come from. */
async function prepare(push: Push, layer: LayerId, signal: AbortSignal): Promise<Prepared> {
  if (push.compression === "none") return prepareUncompressed(push, layer, signal);
  const { context, compression, onProgress } = push;
  const progress = new ProgressCounter({ onProgress, phase: "pack", what: layer, totalBytes: null });
  const packed = packLayer(context, layer, { signal });
  const tar = counted(packed.stream, (bytes) => progress.add(bytes));
  const meter = new DigestMeter();
  const what = `layer ${layer}`;
  const { path } = await spool(compressed(tar, compression, { what, signal }), {
    scratch: push.scratch,
    name: `${layer}.${compression}`,
    what,
    signal,
    onChunk: (chunk) => meter.add(chunk),
  });
  const { diffId } = await packed.result;
  progress.end();
  const blob: Blob = { digest: meter.digest(), diffId, sizeBytes: meter.sizeBytes, compression };
  return {
    sizeBytes: blob.sizeBytes,
    known: blob,
    open: (start) => createReadStream(path, { start, highWaterMark: READ_BYTES }),
    blob: async () => blob,
    close: () => rm(path, { force: true }),
  };
}

/** Packed once, on its way out: how long it will be is known before, and its digest is asked for after the last byte. */
async function prepareUncompressed({ context }: Push, layer: LayerId, signal: AbortSignal): Promise<Prepared> {
  const known = knownPacked(context, layer);
  const blobOf = (diffId: Digest, sizeBytes: number): Blob => ({
    digest: diffId,
    diffId,
    sizeBytes,
    compression: "none",
  });
  const sizeBytes = known?.sizeBytes ?? (await measureLayer(context, layer, { signal }));
  let packed: PackedLayer | undefined;
  return {
    sizeBytes,
    known: known === undefined ? undefined : blobOf(known.diffId, sizeBytes),
    open(start) {
      packed = packLayer(context, layer, { signal });
      return skipping(packed.stream, start);
    },
    async blob() {
      if (known !== undefined) return blobOf(known.diffId, sizeBytes);
      if (packed === undefined) throw new Error("the layer has not been sent");
      const result = await packed.result;
      rememberPacked(context, layer, result);
      return blobOf(result.diffId, sizeBytes);
    },
    close: async () => undefined,
  };
}

async function upload(
  { client, reference, onProgress }: Push,
  layer: LayerId,
  { known, sizeBytes, open, blob }: Prepared,
  signal: AbortSignal,
): Promise<UploadReport> {
  const what = known === undefined ? layer : shortDigest(known.digest);
  const progress = new ProgressCounter({ onProgress, phase: "upload", what, totalBytes: sizeBytes });
  const report = await uploadBlob(
    client,
    reference.repository,
    { digest: known?.digest ?? (async () => (await blob()).digest), what, sizeBytes, open },
    { signal, onBytes: (bytes) => progress.add(bytes - progress.doneBytes) },
  );
  progress.end();
  return report;
}

async function* counted(stream: Readable, onBytes: (bytes: number) => void): AsyncGenerator<Uint8Array> {
  for await (const chunk of stream as AsyncIterable<Uint8Array>) {
    onBytes(chunk.length);
    yield chunk;
  }
}

/** The same bytes from there on: they come out the same every time. */
function skipping(stream: Readable, start: number): Readable {
  if (start === 0) return stream;
  return Readable.from(rest(), { objectMode: false });

  async function* rest(): AsyncGenerator<Uint8Array> {
    let position = 0;
    for await (const chunk of stream as AsyncIterable<Uint8Array>) {
      const skipped = Math.max(0, Math.min(chunk.length, start - position));
      position += chunk.length;
      if (skipped < chunk.length) yield chunk.subarray(skipped);
    }
  }
}

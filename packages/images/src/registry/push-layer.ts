/** One layer of an image into a registry, unless it is there. */
import { createReadStream } from "node:fs";
import { rm } from "node:fs/promises";
import { Readable } from "node:stream";
import type { LayerId } from "@holdfast/engine";
import type { ImagesContext } from "../context.js";
import { type Compression, compressed } from "../layers/compression.js";
import { DigestMeter, shortDigest } from "../layers/digest.js";
import { packLayer } from "../layers/pack-layer.js";
import { type OnProgress, ProgressCounter } from "../layers/progress.js";
import { drain } from "../layers/pump.js";
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
  const { blob } = prepared;
  try {
    const report = (await hasBlob(client, reference.repository, blob.digest, signal))
      ? ({ how: "present", sentBytes: 0 } as const)
      : await upload(push, prepared, signal);
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
  readonly blob: Blob;
  open(start: number): Readable;
  close(): Promise<void>;
}

/** What the layer is as a blob, and where its bytes come from. */
async function prepare(push: Push, layer: LayerId, signal: AbortSignal): Promise<Prepared> {
  const { context, compression, onProgress } = push;
  const progress = new ProgressCounter({ onProgress, phase: "pack", what: layer, totalBytes: null });
  const packed = packLayer(context, layer, { signal });
  const tar = counted(packed.stream, (bytes) => progress.add(bytes));
  if (compression === "none") {
    await drain(tar);
    const { diffId, sizeBytes } = await packed.result;
    progress.end();
    return {
      blob: { digest: diffId, diffId, sizeBytes, compression },
      open: (start) => skipping(packLayer(context, layer, { signal }).stream, start),
      close: async () => undefined,
    };
  }
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
  return {
    blob: { digest: meter.digest(), diffId, sizeBytes: meter.sizeBytes, compression },
    open: (start) => createReadStream(path, { start, highWaterMark: READ_BYTES }),
    close: () => rm(path, { force: true }),
  };
}

async function upload(
  { client, reference, onProgress }: Push,
  { blob, open }: Prepared,
  signal: AbortSignal,
): Promise<UploadReport> {
  const { digest, sizeBytes } = blob;
  const what = shortDigest(digest);
  const progress = new ProgressCounter({ onProgress, phase: "upload", what, totalBytes: sizeBytes });
  const report = await uploadBlob(
    client,
    reference.repository,
    { digest, sizeBytes, open },
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

/**
 * An image into a registry, in OCI's formats. What the registry has is not sent: known blobs are asked for, or mounted from
 * another of its repositories, before a layer is even packed. Compressed layers are spooled to a file once; uncompressed ones
 * are sent while they are packed, since their digest has to be known only when the upload ends.
 */
import type { LayerId } from "@holdfast/engine";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import type { ImagesContext } from "../context.js";
import { COMPRESSIONS, type Compression, isCompression } from "../layers/compression.js";
import { digestOf } from "../layers/digest.js";
import type { OnProgress } from "../layers/progress.js";
import { configOf } from "../oci/config.js";
import { type Descriptor, MEDIA_TYPES, type OciManifest, ociLayerMediaType } from "../oci/types.js";
import { openScratch } from "../scratch/scratch.js";
import { claimImage, releaseClaims } from "../store/claims.js";
import { uniqueName } from "../store/process-tag.js";
import type { ImageRecord } from "../types.js";
import { wrongContent } from "./errors.js";
import { RegistryClient, type RegistryOptions } from "./http.js";
import { KnownBlobs } from "./known-blobs.js";
import { type Push, type PushedLayer, pushLayer } from "./push-layer.js";
import { formatReference, parseReference } from "./reference.js";
import { runParallel } from "./run-parallel.js";
import { hasBlob, pushScopes, type UploadReport, uploadBlob } from "./upload.js";

export interface PushOptions extends RegistryOptions {
  /** Of its layers. Default gzip. */
  readonly compression?: Compression | undefined;
  /** For temporary files, instead of the context's. */
  readonly scratch?: string | undefined;
  /** Layers at a time. Default 2. */
  readonly parallel?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
}

export interface PushReport {
  /** Of the manifest: what the image is called by everybody, whatever its tag. */
  readonly digest: Digest;
  /** `registry/repository:tag`. */
  readonly reference: string;
  /** Lowest first. */
  readonly layers: readonly (Descriptor & { readonly how: UploadReport["how"] })[];
  readonly sentBytes: number;
}

const MAX_PARALLEL = 16;

export async function pushImage(
  context: ImagesContext,
  record: ImageRecord,
  referenceText: string,
  options: PushOptions = {},
): Promise<PushReport> {
  const { store, engine } = context;
  const reference = parseReference(referenceText);
  const { compression = "gzip", parallel = 2, signal } = options;
  if (reference.digest !== null) {
    throw invalidArgument("reference", referenceText, "a name with a tag: the digest comes out of the push");
  }
  if (!isCompression(compression)) throw invalidArgument("compression", compression, COMPRESSIONS.join(", "));
  if (!Number.isInteger(parallel) || parallel < 1 || parallel > MAX_PARALLEL) {
    throw invalidArgument("parallel", parallel, `a whole number from 1 to ${MAX_PARALLEL}`);
  }
  if (record.below !== null) {
    throw new HoldfastError("image_invalid", `image ${record.id} stands on files of this host, and cannot leave it`, {
      hint: "Take the snapshot of a sandbox that was made from an image.",
    });
  }
  const layers = [...(record.disk === null ? [] : [record.disk]), ...record.layers].reverse();
  const holder = `push-${uniqueName()}`;
  const known = new KnownBlobs(store.directory);
  known.sweep(engine.layers);
  try {
    claimImage({ directory: store.directory, layers: engine.layers, holder, record });
    await using scratch = await openScratch(
      { scratchDirectory: options.scratch ?? context.scratchDirectory },
      {
        what: `pushing ${formatReference(reference)}`,
        neededBytes: spooledBytes(context, layers, compression, parallel),
      },
    );
    const client = await RegistryClient.open(reference.registry, options);
    try {
      const push: Push = { context, client, reference, compression, scratch, known, onProgress: options.onProgress };
      const pushed = await runParallel(layers, { parallel, signal }, (layer, stop) => pushLayer(push, layer, stop));
      return await pushManifest(push, record, pushed, signal);
    } finally {
      client.close();
    }
  } catch (reason) {
    throw signal?.aborted === true ? new HoldfastError("canceled", "the push was canceled") : reason;
  } finally {
    releaseClaims(store.directory, holder);
  }
}

/** At worst, if nothing can be compressed. Uncompressed layers need no file. */
function spooledBytes(
  context: ImagesContext,
  layers: readonly LayerId[],
  compression: Compression,
  parallel: number,
): number {
  if (compression === "none") return 0;
  const sizes = layers.map((layer) => context.store.layer(layer)?.sizeBytes ?? 0).sort((left, right) => right - left);
  return sizes.slice(0, parallel).reduce((total, size) => total + size, 0);
}

/** Last, when all that it names is there: whoever sees the tag can have the image. */
async function pushManifest(
  { client, reference }: Push,
  record: ImageRecord,
  pushed: readonly PushedLayer[],
  signal: AbortSignal | undefined,
): Promise<PushReport> {
  const { repository } = reference;
  const what = formatReference(reference);
  const config = json(
    configOf(
      record,
      pushed.map(({ blob, record: layer }) => ({ diffId: blob.diffId, record: layer })),
    ),
  );
  const configDigest = digestOf(config);
  if (!(await hasBlob(client, repository, configDigest, signal))) {
    await uploadBlob(
      client,
      repository,
      { digest: configDigest, sizeBytes: config.length, open: (start) => config.subarray(start) },
      { signal },
    );
  }
  const layers = pushed.map(({ blob }) => ({
    mediaType: ociLayerMediaType(blob.compression),
    digest: blob.digest,
    size: blob.sizeBytes,
  }));
  const manifest: OciManifest = {
    schemaVersion: 2,
    mediaType: MEDIA_TYPES.ociManifest,
    config: { mediaType: MEDIA_TYPES.ociConfig, digest: configDigest, size: config.length },
    layers,
  };
  const body = json(manifest);
  const digest = digestOf(body);
  const url = `/v2/${repository}/manifests/${reference.tag}`;
  const response = await client.request({
    method: "PUT",
    url,
    scopes: pushScopes(repository),
    doing: `writing the manifest of ${what}`,
    expect: [200, 201, 202],
    headers: { "content-type": manifest.mediaType },
    body: { sizeBytes: body.length, open: () => body },
    signal,
  });
  await client.discard(response);
  const check = await client.request({
    method: "HEAD",
    url,
    scopes: pushScopes(repository),
    doing: `reading back the manifest of ${what}`,
    expect: [200],
    headers: { accept: manifest.mediaType },
    signal,
  });
  await client.discard(check);
  const stored = check.headers["docker-content-digest"];
  if (stored !== undefined && stored !== digest) {
    throw wrongContent(client.registry, `${what} is ${String(stored)} there, not ${digest} as it was sent`, {
      expected: digest,
      actual: stored,
    });
  }
  return {
    digest,
    reference: what,
    layers: layers.map((layer, index) => ({ ...layer, how: (pushed[index] as PushedLayer).how })),
    sentBytes: pushed.reduce((total, { sentBytes }) => total + sentBytes, 0),
  };
}

function json(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value));
}

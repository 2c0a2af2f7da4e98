/**
 * An image out of a registry. Layers are spooled to files, and checked and unpacked from there, uncompressed ones while they
 * come; the files stay until all of the image is here, so that a cut connection or a killed process costs nothing but what
 * was not yet on the disk.
 */
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import type { ImagesContext } from "../context.js";
import { type Compression, decompressed, SNIFF_BYTES, sniffCompression } from "../layers/compression.js";
import { shortDigest } from "../layers/digest.js";
import { type OnProgress, ProgressCounter } from "../layers/progress.js";
import { assembleImage, type IncomingLayer } from "../oci/assemble-image.js";
import { parsePlatform } from "../oci/platform.js";
import { isOnPoolsDisk } from "../oci/pool-space.js";
import type { Descriptor } from "../oci/types.js";
import { checkFreeSpace } from "../scratch/free-space.js";
import { checkScratchDirectory } from "../scratch/scratch.js";
import { parseImageReference } from "../store/reference.js";
import type { ImageName, ImageRecord, Owner } from "../types.js";
import { type FetchedManifest, fetchManifest } from "./fetch-manifest.js";
import { RegistryClient, type RegistryOptions } from "./http.js";
import { KnownBlobs } from "./known-blobs.js";
import { LayerDownloads } from "./layer-downloads.js";
import { abandonedBytes, sweepPartialFiles } from "./partial-file.js";
import { formatReference, parseReference, type RegistryReference } from "./reference.js";

export interface PullOptions extends RegistryOptions {
  readonly owner: Owner;
  /** What to call it here. Absent: what it was asked for as. */
  readonly names?: readonly ImageName[] | undefined;
  /** `linux/arm64`. Absent: this host's. */
  readonly platform?: string | undefined;
  /** For temporary files, instead of the context's. */
  readonly scratch?: string | undefined;
  /** Layers at a time. Default 3. */
  readonly parallel?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
}

interface Pull {
  readonly context: ImagesContext;
  readonly client: RegistryClient;
  readonly reference: RegistryReference;
  readonly scratchDirectory: string;
  readonly parallel: number;
  readonly names: readonly ImageName[];
  readonly options: PullOptions;
}

interface WantedLayer {
  readonly diffId: Digest;
  readonly descriptor: Descriptor;
}

const MAX_PARALLEL = 16;

export async function pullImage(
  context: ImagesContext,
  referenceText: string,
  options: PullOptions,
): Promise<ImageRecord> {
  const reference = parseReference(referenceText);
  const platform = options.platform === undefined ? undefined : parsePlatform(options.platform);
  const { parallel = 3, signal } = options;
  if (!Number.isInteger(parallel) || parallel < 1 || parallel > MAX_PARALLEL) {
    throw invalidArgument("parallel", parallel, `a whole number from 1 to ${MAX_PARALLEL}`);
  }
  const names = options.names ?? nameAsAsked(referenceText, options.owner);
  const scratchDirectory = options.scratch ?? context.scratchDirectory;
  checkScratchDirectory(scratchDirectory);
  const client = await RegistryClient.open(reference.registry, options);
  const pull: Pull = { context, client, reference, scratchDirectory, parallel, names, options };
  try {
    await sweepPartialFiles(scratchDirectory);
    const fetched = await fetchManifest(client, reference, { platform, signal });
    return await bring(pull, fetched);
  } catch (reason) {
    throw signal?.aborted === true ? new HoldfastError("canceled", "the pull was canceled") : reason;
  } finally {
    client.close();
  }
}

async function bring(pull: Pull, fetched: FetchedManifest): Promise<ImageRecord> {
  const { context, client, reference, options } = pull;
  const { manifest, config } = fetched;
  const layers = manifest.layers.map(
    (descriptor, index): WantedLayer => ({ descriptor, diffId: config.rootfs.diff_ids[index] as Digest }),
  );
  const trusted = trustedLayers(pull, layers);
  const missing = layers.filter(({ diffId }) => !trusted.has(diffId));
  checkSpace(pull, missing);

  const stop = new AbortController();
  const signal = options.signal === undefined ? stop.signal : AbortSignal.any([options.signal, stop.signal]);
  const downloads = new LayerDownloads({
    client,
    repository: reference.repository,
    scratchDirectory: pull.scratchDirectory,
    parallel: pull.parallel,
    signal,
    onFailure: (reason) => stop.abort(reason),
    onProgress: options.onProgress,
  });
  for (const { descriptor, diffId } of missing) void downloads.get(descriptor, diffId);
  const compressions = new Map<WantedLayer, Compression>();
  let keep = false;
  try {
    const incoming = layers.map(
      (layer): IncomingLayer => ({
        diffId: layer.diffId,
        expectedBytes: layer.descriptor.size,
        open: (unpacking) => content(pull, layer, downloads, { signal: unpacking, compressions }),
      }),
    );
    const record = await assembleImage(
      context,
      { configDigest: manifest.config.digest, config, layers: incoming },
      {
        owner: options.owner,
        names: pull.names,
        from: `pulled from ${formatReference(reference)}`,
        trusted,
        signal,
      },
    );
    rememberBlobs(pull, compressions);
    return record;
  } catch (reason) {
    // If the registry cannot be reached any more, the same pull goes on from here. Everything else begins anew.
    keep = reason instanceof HoldfastError && reason.code === "registry_failed";
    stop.abort(reason);
    throw reason;
  } finally {
    await downloads.close({ keep });
  }
}

/**
 * Layers of this host need not be fetched, but only those of images that the owner may see: whoever serves a manifest can
 * name any content in it, and would come by somebody else's files.
 */
function trustedLayers({ context, options }: Pull, layers: readonly WantedLayer[]): Set<Digest> {
  const { store, engine } = context;
  const visible = new Set(store.list({ owner: options.owner }).flatMap((image) => [...image.layers, image.disk]));
  const isTrusted = ({ diffId }: WantedLayer): boolean => {
    const known = store.layerByDiffId(diffId);
    return known !== undefined && visible.has(known.id) && engine.layers.has(known.id);
  };
  return new Set(layers.filter(isTrusted).map(({ diffId }) => diffId));
}

async function* content(
  { reference, options }: Pull,
  layer: WantedLayer,
  downloads: LayerDownloads,
  { signal, compressions }: { readonly signal: AbortSignal; readonly compressions: Map<WantedLayer, Compression> },
): AsyncGenerator<Uint8Array> {
  const { digest, size } = layer.descriptor;
  const what = `layer ${shortDigest(digest)} of ${formatReference(reference)}`;
  const progress = new ProgressCounter({
    onProgress: options.onProgress,
    phase: "unpack",
    what: shortDigest(digest),
    totalBytes: size,
  });
  const onBytes = (bytes: number): void => progress.add(bytes);
  const { begun, whole } = downloads.get(layer.descriptor, layer.diffId);
  const begins = await begun;
  if (digest === layer.diffId && begins.foundBytes === 0) {
    // Nothing has to be known of all of it before: what it unpacks from is what is checked in the end.
    compressions.set(layer, "none");
    yield* begins.chunksAsTheyCome({ whole, onBytes });
  } else {
    const file = await whole;
    // By its content: media types are not always right, and the digests are what counts.
    const compression = sniffCompression(await file.firstBytes(SNIFF_BYTES));
    compressions.set(layer, compression);
    yield* decompressed(file.chunks({ signal, onBytes }), compression, { what, signal });
  }
  progress.end();
}

/** For pushing them back where they came from. */
function rememberBlobs(
  { context, client, reference }: Pull,
  compressions: ReadonlyMap<WantedLayer, Compression>,
): void {
  const known = new KnownBlobs(context.store.directory);
  for (const [{ diffId, descriptor }, compression] of compressions) {
    const layer = context.store.layerByDiffId(diffId);
    if (layer === undefined) continue;
    const blob = { digest: descriptor.digest, diffId, sizeBytes: descriptor.size, compression };
    known.add(layer.id, blob, `${client.registry}/${reference.repository}`);
  }
}

/** Before anything is fetched. What the layers take where they are unpacked is checked there. */
function checkSpace({ context, scratchDirectory, reference }: Pull, missing: readonly WantedLayer[]): void {
  const sizes = new Map(missing.map(({ descriptor }) => [descriptor.digest, descriptor.size]));
  let neededBytes = 0;
  for (const [digest, size] of sizes) neededBytes += Math.max(0, size - abandonedBytes(scratchDirectory, digest));
  // Layers take at least what they take packed.
  if (isOnPoolsDisk(context, scratchDirectory)) for (const size of sizes.values()) neededBytes += size;
  if (neededBytes > 0) checkFreeSpace(scratchDirectory, neededBytes, `pulling ${formatReference(reference)}`);
}

function nameAsAsked(reference: string, owner: Owner): ImageName[] {
  const { name, tag, digest } = parseImageReference(reference);
  return digest !== undefined && tag === undefined ? [] : [{ owner, name, tag: tag ?? "latest" }];
}

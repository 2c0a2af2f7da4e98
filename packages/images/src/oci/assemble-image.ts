/** From a config and the content of layers, wherever they come from, to an image of this host: all of it or nothing. */
import type { LayerId } from "@holdfast/engine";
import { createRandomId, HoldfastError } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import type { ImagesContext } from "../context.js";
import { assertDigest, DigestMeter, shortDigest } from "../layers/digest.js";
import { drain } from "../layers/pump.js";
import { removeNewLayer } from "../layers/remove-new-layer.js";
import { unpackLayer } from "../layers/unpack-layer.js";
import { claimLayer, releaseClaims } from "../store/claims.js";
import { createImageId } from "../store/ids.js";
import { putNamed } from "../store/put-named.js";
import { checkImageName } from "../store/reference.js";
import type { ImageName, ImageRecord, Owner } from "../types.js";
import { extrasFrom, imageConfigFrom } from "./config.js";
import { checkPoolSpace, whileThereIsRoom } from "./pool-space.js";
import { imageInvalid } from "./read-json.js";
import type { OciConfig } from "./types.js";

/** One after the other: of two that are unpacked at once, the engine has to copy one for its inode numbers. */
const PARALLEL = 1;

export interface IncomingLayer {
  readonly diffId: Digest;
  /** What it takes on the disk, as far as that is known before: at least what comes in. */
  readonly expectedBytes: number;
  /** Its uncompressed tar. Called once at most. */
  open(signal: AbortSignal): AsyncIterable<Uint8Array>;
}

export interface IncomingImage {
  readonly configDigest: Digest;
  readonly config: OciConfig;
  /** Lowest first. */
  readonly layers: readonly IncomingLayer[];
}

export interface AssembleOptions {
  readonly owner: Owner;
  readonly names: readonly ImageName[];
  /** For a person, of the layers: `imported from app.tar`. */
  readonly from: string;
  /**
   * Layers that are not asked for if they are here already. The content of all others is read in any case, so that nobody
   * gets the files of somebody else's image by knowing their digest.
   */
  readonly trusted?: ReadonlySet<Digest> | undefined;
  readonly signal?: AbortSignal | undefined;
}

export async function assembleImage(
  context: ImagesContext,
  image: IncomingImage,
  options: AssembleOptions,
): Promise<ImageRecord> {
  const { store } = context;
  // Bad configs are refused before anything is unpacked.
  const config = imageConfigFrom(image.config);
  const extras = extrasFrom(image.config);
  if (image.layers.length === 0) throw imageInvalid("the image has no layers, so there is nothing in it to run");
  for (const name of options.names) checkImageName(name);
  const holder = createRandomId("import-");
  const made: LayerId[] = [];
  try {
    const layers = await bringLayers(context, image, options, { holder, made });
    options.signal?.throwIfAborted();
    const known = store.find(image.configDigest, options.owner);
    const record: ImageRecord =
      known !== undefined && known.owner === options.owner && isSame(known.layers, layers)
        ? known
        : {
            version: 1,
            id: createImageId(),
            kind: "imported",
            digest: image.configDigest,
            owner: options.owner,
            createdAt: new Date().toISOString(),
            layers,
            below: null,
            disk: null,
            config,
            ...extras,
            parent: null,
            fromSandbox: null,
            buildId: null,
          };
    if (record !== known) putNamed(store, record, options.names);
    else for (const name of options.names) store.setName(name, record.id);
    return record;
  } catch (error) {
    for (const layer of made) {
      await removeNewLayer(context, layer, holder).catch((reason: unknown) => {
        context.log.warn(
          { left: "layer", layer, error: HoldfastError.from(reason).message },
          "a layer of a failed import is left",
        );
      });
    }
    throw options.signal?.aborted === true ? HoldfastError.from(options.signal.reason, "canceled") : error;
  } finally {
    releaseClaims(store.directory, holder);
  }
}

function isSame(left: readonly LayerId[], right: readonly LayerId[]): boolean {
  return left.length === right.length && left.every((layer, index) => layer === right[index]);
}

interface Work {
  readonly holder: string;
  /** Those that are new, for taking back. */
  readonly made: LayerId[];
}

/** Uppermost first. */
async function bringLayers(
  context: ImagesContext,
  image: IncomingImage,
  options: AssembleOptions,
  work: Work,
): Promise<LayerId[]> {
  // A layer that comes twice counts where it is uppermost: what it holds hides what it held below.
  const distinct = new Map<Digest, IncomingLayer>();
  for (const layer of [...image.layers].reverse()) if (!distinct.has(layer.diffId)) distinct.set(layer.diffId, layer);
  const layers = [...distinct.values()];
  const reused = new Map<Digest, LayerId>();
  for (const { diffId } of layers) {
    const id = claimKnown(context, diffId, work.holder);
    if (id !== undefined) reused.set(diffId, id);
  }
  const fresh = layers.filter(({ diffId }) => !reused.has(diffId));
  const neededBytes = fresh.reduce((total, { expectedBytes }) => total + expectedBytes, 0);
  const roomBytes = await checkPoolSpace(context.engine, { neededBytes, what: "the image" });

  const failed = new AbortController();
  const signal = options.signal === undefined ? failed.signal : AbortSignal.any([options.signal, failed.signal]);
  const ids: LayerId[] = new Array(layers.length);
  let next = 0;
  // Lowest first, as they come in an archive.
  const order = layers.map((_, index) => layers.length - 1 - index);
  const worker = async (): Promise<void> => {
    for (;;) {
      const index = order[next++];
      const layer = index === undefined ? undefined : layers[index];
      if (index === undefined || layer === undefined) return;
      const known = reused.get(layer.diffId);
      if (known !== undefined) {
        if (options.trusted?.has(layer.diffId) !== true) await verifyLayer(layer, signal);
        ids[index] = known;
        continue;
      }
      const content = whileThereIsRoom(context.engine, layer.open(signal), "the rest of the image");
      const record = await unpackLayer(context, content, {
        from: options.from,
        expectedDiffId: layer.diffId,
        maxBytes: roomBytes,
        signal,
        holder: work.holder,
      });
      work.made.push(record.id);
      ids[index] = record.id;
    }
  };
  let cause: unknown;
  await Promise.all(
    Array.from({ length: Math.min(PARALLEL, layers.length) }, () =>
      worker().catch((error: unknown) => {
        cause ??= error;
        failed.abort(error);
      }),
    ),
  );
  if (cause !== undefined) throw cause;
  return ids;
}

function claimKnown(context: ImagesContext, diffId: Digest, holder: string): LayerId | undefined {
  const known = context.store.layerByDiffId(diffId);
  if (known === undefined || !claimLayer(context.store.directory, holder, known.id)) return undefined;
  return context.engine.layers.has(known.id) ? known.id : undefined;
}

/** Read although it is here: nobody gets the files of somebody else's image by knowing their digest. */
async function verifyLayer(layer: IncomingLayer, signal: AbortSignal): Promise<void> {
  const meter = new DigestMeter();
  await drain(layer.open(signal), (chunk) => meter.add(chunk));
  assertDigest(meter.digest(), layer.diffId, `layer ${shortDigest(layer.diffId)}`);
}

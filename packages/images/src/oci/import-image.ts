import { basename } from "node:path";
import { HoldfastError } from "@holdfast/protocol";
import type { ImagesContext } from "../context.js";
import { decompressed, SNIFF_BYTES, sniffCompression } from "../layers/compression.js";
import { shortDigest, verified } from "../layers/digest.js";
import { type OnProgress, ProgressCounter } from "../layers/progress.js";
import { parseImageReference } from "../store/reference.js";
import type { ImageName, ImageRecord, Owner } from "../types.js";
import type { ArchiveFiles } from "./archive-files.js";
import { assembleImage, type IncomingLayer } from "./assemble-image.js";
import { type FoundLayer, findImage } from "./find-image.js";
import { type ArchiveSource, openArchive } from "./open-archive.js";
import { parsePlatform } from "./platform.js";

export interface ImportOptions {
  readonly owner: Owner;
  /** What to call it; what the archive calls it if none are given. */
  readonly names?: readonly ImageName[] | undefined;
  /** Which one, of an archive of several: a name, or a digest's first digits. */
  readonly reference?: string | undefined;
  /** `linux/arm64`; this host's if absent. */
  readonly platform?: string | undefined;
  /** A directory for temporary files, if not the context's. */
  readonly scratch?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
}

/**
 * What `docker save`, skopeo, buildah and podman write: docker archives and OCI layouts, as a tar (compressed or not), a
 * directory or a stream. Memory does not grow with it; what fails leaves nothing.
 */
export async function importImage(
  context: ImagesContext,
  source: ArchiveSource,
  options: ImportOptions,
): Promise<ImageRecord> {
  const platform = options.platform === undefined ? undefined : parsePlatform(options.platform);
  options.signal?.throwIfAborted();
  let files: ArchiveFiles | undefined;
  try {
    files = await openArchive(context, source, options);
    const found = await findImage(files, { reference: options.reference, platform });
    const counter = new ProgressCounter({
      onProgress: options.onProgress,
      phase: "unpack",
      what: found.names[0] ?? shortDigest(found.configDigest),
      totalBytes: found.layers.reduce((total, { sizeBytes }) => total + sizeBytes, 0),
    });
    const layers: IncomingLayer[] = [];
    for (const layer of found.layers) layers.push(await incomingLayer(files, layer, counter));
    const record = await assembleImage(
      context,
      { configDigest: found.configDigest, config: found.config, layers },
      {
        owner: options.owner,
        names: options.names?.length ? options.names : namesFrom(context, found.names, options.owner),
        from: "path" in source ? `imported from ${basename(source.path)}` : "imported",
        signal: options.signal,
      },
    );
    counter.end();
    return record;
  } catch (error) {
    if (options.signal?.aborted === true) throw HoldfastError.from(options.signal.reason, "canceled");
    throw error;
  } finally {
    await files?.close();
  }
}

async function incomingLayer(files: ArchiveFiles, layer: FoundLayer, counter: ProgressCounter): Promise<IncomingLayer> {
  const what = `layer ${shortDigest(layer.diffId)}`;
  const first = (await files.read(layer.file, { maxBytes: SNIFF_BYTES, part: true })) ?? Buffer.alloc(0);
  // By its content: docker's archives do not say, and media types are not always right. The digests are what counts.
  const compression = sniffCompression(first);
  return {
    diffId: layer.diffId,
    expectedBytes: layer.sizeBytes,
    open(signal) {
      const raw = counted(files.stream(layer.file, { signal }), counter);
      // What it is compressed to has a digest of its own; of a plain one it is the diffId, which is checked anyway.
      const isChecked = layer.digest === null || (compression === "none" && layer.digest === layer.diffId);
      const checked = isChecked
        ? raw
        : verified(raw, { digest: layer.digest as NonNullable<typeof layer.digest>, sizeBytes: layer.sizeBytes, what });
      return decompressed(checked, compression, { what, signal });
    },
  };
}

async function* counted(content: AsyncIterable<Uint8Array>, counter: ProgressCounter): AsyncGenerator<Uint8Array> {
  for await (const chunk of content) {
    counter.add(chunk.length);
    yield chunk;
  }
}

/** Those that can be names here; the others are somebody else's customs, and no reason to refuse the image. */
function namesFrom(context: ImagesContext, texts: readonly string[], owner: Owner): ImageName[] {
  return texts.flatMap((text) => {
    try {
      const { name, tag, digest } = parseImageReference(text);
      return digest === undefined ? [{ owner, name, tag: tag ?? "latest" }] : [];
    } catch (error) {
      context.log.warn({ name: text.slice(0, 200), error: HoldfastError.from(error).message }, "a name was left out");
      return [];
    }
  });
}

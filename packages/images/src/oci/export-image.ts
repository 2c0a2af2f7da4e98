import { createWriteStream } from "node:fs";
import { stat } from "node:fs/promises";
import { Writable } from "node:stream";
import { createRandomId, HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import type { ImagesContext } from "../context.js";
import { COMPRESSIONS, type Compression, isCompression } from "../layers/compression.js";
import { measureLayer } from "../layers/pack-layer.js";
import type { OnProgress } from "../layers/progress.js";
import { endStream } from "../layers/pump.js";
import { openScratch, sweepScratch } from "../scratch/scratch.js";
import { claimImage, releaseClaims } from "../store/claims.js";
import { formatImageName } from "../store/reference.js";
import type { ImageName, ImageRecord } from "../types.js";
import { type BlobWriter, TarStreamWriter } from "./blob-writers.js";
import { writeToDirectory, writeToFile } from "./export-to-path.js";
import { tarEntryBytes } from "./tar-header.js";
import { layersToExport, type WriteImageOptions, type WrittenImage, writeImage } from "./write-image.js";

export const EXPORT_FORMATS = ["oci", "docker", "oci-directory"] as const;
/** `oci`: an OCI layout as a tar. `docker`: the same with what `docker load` reads. */
export type ExportFormat = (typeof EXPORT_FORMATS)[number];

export interface ExportOptions {
  readonly format: ExportFormat;
  /** A stream is written to, not ended. */
  readonly to:
    | Writable
    | {
        readonly path: string;
        /** The file goes again soon: nobody waits until it is on the disk. */
        readonly isTemporary?: boolean | undefined;
      };
  /** Of the layers. Default none. */
  readonly compression?: Compression | undefined;
  readonly names?: readonly ImageName[] | undefined;
  /** A directory for temporary files, if not the context's. Only compressed layers into a stream need some. */
  readonly scratch?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
}

export interface ExportReport {
  readonly sizeBytes: number;
  readonly configDigest: Digest;
  readonly manifestDigest: Digest;
}

/** Headers and documents beside the layers. */
const EXTRA_BYTES = 64 * 1024;
/** What files of all kinds can be expected to be compressed to, at best. */
const BEST_RATIO = 0.25;

/** The same image gives the same bytes every time, into a file or a stream. Memory does not grow with it. */
export async function exportImage(
  context: ImagesContext,
  record: ImageRecord,
  options: ExportOptions,
): Promise<ExportReport> {
  const { format, compression = "none", signal, names = [] } = options;
  if (!EXPORT_FORMATS.includes(format)) throw invalidArgument("format", format, EXPORT_FORMATS.join(", "));
  if (!isCompression(compression)) throw invalidArgument("compression", compression, COMPRESSIONS.join(", "));
  if (record.below !== null) {
    throw new HoldfastError("invalid_argument", `image ${record.id} lies on the host's own files and cannot leave it`, {
      hint: "Only images that are made of layers can be exported.",
    });
  }
  const holder = createRandomId("export-");
  try {
    claimImage({ directory: context.store.directory, layers: context.engine.layers, holder, record });
    const sizes: number[] = [];
    for (const id of layersToExport(record)) sizes.push(await measureLayer(context, id, { signal }));
    const totalBytes = sizes.reduce((total, size) => total + size, 0);
    const scratchDirectory = options.scratch ?? context.scratchDirectory;
    const bestBytes = (bytes: number): number => Math.ceil(bytes * (compression === "none" ? 1 : BEST_RATIO));
    const write = (writer: BlobWriter): Promise<WrittenImage> =>
      writeImage(context, record, writer, {
        isForDocker: format === "docker",
        compression,
        names: [...names].sort((left, right) => (formatImageName(left) < formatImageName(right) ? -1 : 1)),
        openScratch: async () => {
          if (options.scratch !== undefined) sweepScratch(options.scratch);
          const neededBytes = bestBytes(Math.max(...sizes));
          return openScratch({ scratchDirectory }, { what: "compressing the largest layer", neededBytes });
        },
        totalBytes,
        signal,
        onProgress: options.onProgress,
      } satisfies WriteImageOptions);
    const neededBytes = EXTRA_BYTES + sizes.reduce((total, size) => total + tarEntryBytes(bestBytes(size)), 0);
    return await writeTo(options, neededBytes, write);
  } catch (error) {
    throw signal?.aborted === true ? HoldfastError.from(signal.reason, "canceled") : error;
  } finally {
    releaseClaims(context.store.directory, holder);
  }
}

async function writeTo(
  { to, format, signal }: ExportOptions,
  neededBytes: number,
  write: (writer: BlobWriter) => Promise<WrittenImage>,
): Promise<ExportReport> {
  if (to instanceof Writable || !("path" in to)) {
    if (format === "oci-directory") throw invalidArgument("to", "a stream", "a path, for a directory");
    return writeToStream(to as Writable, signal, write);
  }
  const { path, isTemporary } = to;
  if (format === "oci-directory") return writeToDirectory({ path, neededBytes }, write);
  const there = await stat(path).catch(() => undefined);
  if (there?.isDirectory() === true) throw invalidArgument("to", path, "a file, not a directory");
  if (there === undefined || there.isFile()) return writeToFile({ path, neededBytes, isTemporary }, write);
  // A pipe or a device: it cannot be gone back in, nor replaced.
  const stream = createWriteStream(path);
  // It may fail once more after whoever was told first has gone.
  stream.on("error", () => {});
  try {
    const report = await writeToStream(stream, signal, write);
    await endStream(stream);
    return report;
  } finally {
    stream.destroy();
  }
}

async function writeToStream(
  stream: Writable,
  signal: AbortSignal | undefined,
  write: (writer: BlobWriter) => Promise<WrittenImage>,
): Promise<ExportReport> {
  const writer = new TarStreamWriter(stream, { signal });
  try {
    const written = await write(writer);
    return { ...written, sizeBytes: writer.sizeBytes };
  } finally {
    writer.close();
  }
}

/** An image, as an archive, into a running container or sandbox. */
import { once } from "node:events";
import { PassThrough, type Readable } from "node:stream";
import type { FileEntry, Sandbox } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import type { ImagesContext } from "../context.js";
import type { Compression } from "../layers/compression.js";
import { type OnProgress, ProgressCounter } from "../layers/progress.js";
import { type ExportFormat, exportImage } from "../oci/export-image.js";
import { openScratch, sweepScratch } from "../scratch/scratch.js";
import type { ImageName, ImageRecord } from "../types.js";
import { type ContainerTarget, deliverToContainer } from "./container-archive.js";
import { checkFileName, tarAround } from "./wrap-as-tar.js";

export interface DeliverOptions {
  readonly to:
    | ({ readonly kind: "container" } & ContainerTarget)
    /** `path`: of the archive itself. */
    | { readonly kind: "sandbox"; readonly sandbox: Sandbox; readonly path: string };
  /** What the archive is called in the container's directory. Default `image.tar`. */
  readonly fileName?: string | undefined;
  readonly format?: Exclude<ExportFormat, "oci-directory"> | undefined;
  readonly compression?: Compression | undefined;
  readonly names?: readonly ImageName[] | undefined;
  readonly scratch?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: OnProgress | undefined;
}

export async function deliverImage(
  context: ImagesContext,
  record: ImageRecord,
  options: DeliverOptions,
): Promise<void> {
  const { to, format = "docker", compression, names, scratch, signal, onProgress } = options;
  const how = { format, compression, names, scratch, signal };
  if (to.kind === "sandbox") {
    const archive = new PassThrough();
    const written = exportImage(context, record, { ...how, to: archive }).then(
      () => void archive.end(),
      (error: unknown) => void archive.destroy(HoldfastError.from(error)),
    );
    try {
      await deliverToSandbox(to.sandbox, { path: to.path, content: archive, onProgress });
    } finally {
      archive.destroy();
      await written;
    }
    return;
  }
  const name = options.fileName ?? "image.tar";
  checkFileName(name, "fileName");
  if (scratch !== undefined) sweepScratch(scratch);
  const place = await openScratch({ scratchDirectory: scratch ?? context.scratchDirectory }, { what: "the archive" });
  try {
    const path = place.path("image.tar");
    const { sizeBytes } = await exportImage(context, record, { ...how, to: { path, isTemporary: true }, onProgress });
    const tar = tarAround({ path, sizeBytes, name, signal, close: () => place.close() });
    await deliverToContainer(tar, { ...to, signal, onProgress });
  } finally {
    await place.close();
  }
}

/** A stream into a file of a sandbox: there whole or not at all. */
export async function deliverToSandbox(
  sandbox: Pick<Sandbox, "files" | "id">,
  options: {
    readonly path: string;
    readonly content: Readable;
    readonly user?: string | undefined;
    readonly totalBytes?: number | undefined;
    readonly onProgress?: OnProgress | undefined;
  },
): Promise<FileEntry> {
  const { path, content } = options;
  const counter = new ProgressCounter({
    onProgress: options.onProgress,
    phase: "deliver",
    what: `${sandbox.id}:${path}`,
    totalBytes: options.totalBytes ?? null,
  });
  const counted = new PassThrough({
    transform(chunk: Uint8Array, _encoding, callback) {
      counter.add(chunk.length);
      callback(null, chunk);
    },
  });
  content.on("error", (error) => counted.destroy(error));
  content.on("close", () => {
    if (!content.readableEnded) counted.destroy(new HoldfastError("canceled", "the content was cut off"));
  });
  content.pipe(counted);
  try {
    const entry = await sandbox.files.write(path, counted, {
      user: options.user ?? "root",
      atomic: true,
      parents: true,
    });
    counter.end();
    return entry;
  } finally {
    counted.destroy();
    if (!content.destroyed) {
      content.destroy();
      await once(content, "close").catch(() => undefined);
    }
  }
}

export { type ContainerTarget, deliverToContainer } from "./container-archive.js";
export { type WrapOptions, type WrappedTar, wrapAsTar } from "./wrap-as-tar.js";

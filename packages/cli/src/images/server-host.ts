/** Images of a server, over its API. */
import { createReadStream, createWriteStream, statSync } from "node:fs";
import { rename, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { Readable, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import {
  type BuildLogLine,
  HoldfastError,
  type ImageInfo,
  invalidArgument,
  type PruneResult,
} from "@holdfast/protocol";
import type { Image } from "@holdfast/recipe";
import type { Images } from "@holdfast/sdk";
import { inParallel } from "../client/in-parallel.js";
import { counting } from "./counting.js";
import type {
  ContainerRequest,
  ExportRequest,
  HistoryLayer,
  HostBuildOptions,
  ImageHost,
  ImportRequest,
  MoveOptions,
  RegistryFlags,
} from "./image-host.js";
import { noLog } from "./no-log.js";
import { writeError } from "./write-error.js";

export class ServerHost implements ImageHost {
  readonly #images: Images;
  readonly #scratch: string | undefined;

  constructor(images: Images, options: { readonly scratchDirectory?: string | undefined } = {}) {
    this.#images = images;
    this.#scratch = options.scratchDirectory;
  }

  build(image: Image, options: HostBuildOptions): Promise<ImageInfo> {
    return this.#images.build(image, {
      name: options.names,
      builder: options.builder,
      forceFrom: options.again ? 0 : undefined,
      onLog: options.onLog,
      onBuild: options.onBuild,
      signal: options.signal,
    });
  }

  async list(): Promise<readonly ImageInfo[]> {
    const listed = await this.#images.list();
    const whole = await inParallel(listed, async ({ id }) => {
      try {
        return await this.#images.get(id);
      } catch (reason) {
        const error = HoldfastError.from(reason);
        // It went while we looked.
        if (error.code !== "image_not_found") throw error;
        return undefined;
      }
    });
    return whole.filter((info) => info !== undefined);
  }

  get(reference: string): Promise<ImageInfo> {
    return this.#images.get(reference);
  }

  async history(_reference: string): Promise<readonly HistoryLayer[]> {
    throw new HoldfastError("not_implemented", "a server does not tell what an image's layers were made by", {
      hint: "Ask on the server's own machine, without --url; `holdfast image log` shows the build.",
    });
  }

  async *log(reference: string, { signal }: { readonly signal: AbortSignal }): AsyncGenerator<BuildLogLine> {
    const { id, buildId } = await this.#images.get(reference, { signal });
    if (buildId === null) throw noLog(id, null);
    try {
      yield* this.#images.buildLog(buildId, { signal });
    } catch (reason) {
      throw HoldfastError.from(reason).code === "build_not_found" ? noLog(id, buildId) : reason;
    }
  }

  remove(reference: string): Promise<PruneResult> {
    return this.#images.remove(reference);
  }

  setName(reference: string, name: string): Promise<ImageInfo> {
    return this.#images.setName(reference, name);
  }

  async removeName(name: string): Promise<void> {
    await this.#images.removeName(name, name);
  }

  prune(options: { readonly all: boolean; readonly unusedForMs: number | undefined }): Promise<PruneResult> {
    return this.#images.prune(options);
  }

  async import(request: ImportRequest, { signal, onProgress }: MoveOptions): Promise<ImageInfo> {
    const { path, names, reference, platform } = request;
    const source = path === null ? process.stdin : openArchive(path);
    const totalBytes = path === null ? null : statSync(path).size;
    const content = Readable.from(
      counting(source, { phase: "upload", what: path ?? "stdin", totalBytes: totalBytes || null, onProgress }),
      { objectMode: false },
    );
    const stream = Readable.toWeb(content) as ReadableStream<Uint8Array>;
    try {
      return await this.#images.import(stream, { name: names, reference, platform, signal });
    } finally {
      source.destroy();
    }
  }

  async export(reference: string, request: ExportRequest, { signal, onProgress }: MoveOptions): Promise<number> {
    const stream = await this.archive(reference, request, { signal });
    const source = Readable.fromWeb(stream as Parameters<typeof Readable.fromWeb>[0]);
    let sizeBytes = 0;
    const counted = counting(source, {
      phase: "download",
      what: request.path ?? "stdout",
      totalBytes: null,
      onProgress: (progress) => {
        sizeBytes = progress.doneBytes;
        onProgress(progress);
      },
    });
    if (request.path === null) await pipeline(counted, process.stdout as Writable, { signal, end: false });
    else await writeWhole(request.path, counted, signal);
    return sizeBytes;
  }

  async archive(
    reference: string,
    { format, compression }: Omit<ExportRequest, "path">,
    { signal }: Pick<MoveOptions, "signal">,
  ): Promise<ReadableStream<Uint8Array>> {
    if (format === "oci-directory") {
      throw new HoldfastError("invalid_argument", "--format: a server sends an image as one stream, not a directory", {
        hint: "Take --format oci and unpack it (`tar -x`), or export on the server's own machine, without --url.",
        details: { field: "--format" },
      });
    }
    return this.#images.export(reference, { format, compression, signal });
  }

  pull(
    reference: string,
    request: RegistryFlags & { readonly names: readonly string[]; readonly platform: string | undefined },
    options: MoveOptions,
  ): Promise<ImageInfo> {
    return this.#images.pull(reference, { ...given(request), ...options });
  }

  push(
    reference: string,
    target: string,
    request: RegistryFlags & { readonly compression: ExportRequest["compression"] },
    options: MoveOptions,
  ): Promise<{ readonly digest: string }> {
    return this.#images.push(reference, target, { ...given(request), ...options });
  }

  /** Docker is this machine's, the image is the server's: it comes through here, and its size has to be known first. */
  async deliverToContainer(reference: string, request: ContainerRequest, options: MoveOptions): Promise<void> {
    const { wrapAsTar, deliverToContainer } = await import("@holdfast/images");
    const { container, directory, socketPath, fileName } = request;
    const stream = await this.archive(reference, request, options);
    const scratchDirectory = this.#scratch ?? process.env.HOLDFAST_SCRATCH_DIR ?? tmpdir();
    const content = Readable.fromWeb(stream as Parameters<typeof Readable.fromWeb>[0]);
    const tar = await wrapAsTar({ scratchDirectory }, content, { name: fileName, ...options });
    await deliverToContainer(tar, { container, path: directory, socketPath, ...options });
  }

  async close(): Promise<void> {}
}

function openArchive(path: string): Readable {
  const there = statSync(path, { throwIfNoEntry: false });
  if (there === undefined) throw new HoldfastError("file_not_found", `cannot read ${path}: there is no such file`);
  if (there.isDirectory()) {
    throw new HoldfastError("invalid_argument", `FILE: ${path} is a directory, and a server takes one stream`, {
      hint: `Send it as a tar: tar -C ${path} -c . | holdfast image import -`,
      details: { field: "FILE" },
    });
  }
  return createReadStream(path, { highWaterMark: 1024 * 1024 });
}

/** There whole or not at all, unless it is a pipe or a device. */
async function writeWhole(path: string, content: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
  const there = await stat(path).catch(() => undefined);
  if (there?.isDirectory() === true) throw invalidArgument("--output", path, "a file, not a directory");
  const isFile = there === undefined || there.isFile();
  const fresh = isFile ? `${path}.${process.pid}.new` : path;
  try {
    await pipeline(content, createWriteStream(fresh, isFile ? { flags: "wx" } : {}), { signal });
    if (isFile) await rename(fresh, path);
  } catch (error) {
    if (isFile) await rm(fresh, { force: true });
    throw signal.aborted ? new HoldfastError("canceled", "the export was canceled") : writeError(error, path);
  }
}

/** The server refuses what it does not know, and undefined is not said in JSON anyway. */
function given<T extends object>(options: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]: Exclude<T[K], undefined> };
}

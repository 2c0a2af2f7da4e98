/** Images of this machine, as its operator: every key's are seen, what is made is everybody's. */
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { stat } from "node:fs/promises";
import { PassThrough, Readable, type Writable } from "node:stream";
import { finished } from "node:stream/promises";
import type { BuildInfo, BuildLogEntry, ImageName, ImageRecord, Images, RegistryAuth } from "@holdfast/images";
import { type BuildLogLine, HoldfastError, type ImageInfo, type PruneResult } from "@holdfast/protocol";
import type { Image } from "@holdfast/recipe";
import type { EngineFlags } from "../engine-options.js";
import { describeImage } from "./describe-image.js";
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
import { type LocalImages, type LocalImagesOptions, openLocalImages } from "./open-local-images.js";
import { writeError } from "./write-error.js";

type ImagesModule = typeof import("@holdfast/images");

/** How often what has become of the steps is looked at while lines come: it may lie in a file. */
const LOOK_MS = 50;
const NOBODY_LISTENS_MS = 100;

export class LocalHost implements ImageHost {
  readonly #local: LocalImages;
  readonly #images: Images;
  readonly #module: ImagesModule;

  private constructor(local: LocalImages, module: ImagesModule) {
    this.#local = local;
    this.#images = local.images;
    this.#module = module;
  }

  static async open(flags: EngineFlags, options: LocalImagesOptions = {}): Promise<LocalHost> {
    const module = await import("@holdfast/images");
    return new LocalHost(await openLocalImages(flags, options), module);
  }

  async build(image: Image, options: HostBuildOptions): Promise<ImageInfo> {
    const { store, builder } = this.#images;
    const { signal, onLog, onBuild } = options;
    const { recipe, blobs, builder: declared } = await image.resolve();
    const byDigest = new Map(blobs.map((blob) => [blob.digest, blob]));
    for (const digest of store.blobs.missing([...byDigest.keys()])) {
      const blob = byDigest.get(digest);
      if (blob !== undefined) await store.blobs.put(digest, chunksOf(blob.open()), { signal });
    }
    signal.throwIfAborted();
    const build = await builder.start({
      recipe,
      owner: null,
      names: options.names.map((name) => this.#nameFrom(name, "--tag")),
      builder: { ...declared, ...options.builder },
      forceFrom: options.again ? 0 : undefined,
      authFor: () => authOf(undefined),
    });
    const stop = (): void => void build.cancel("the one who asked for it");
    signal.addEventListener("abort", stop, { once: true });
    const tell = (): void => onBuild(stepsOf(build.info()));
    const looking = setInterval(tell, NOBODY_LISTENS_MS);
    try {
      if (signal.aborted) stop();
      await followLog(build.log(), { tell, onLog });
      return await describeImage(store, await build.image);
    } finally {
      clearInterval(looking);
      signal.removeEventListener("abort", stop);
      tell();
    }
  }

  async list(): Promise<readonly ImageInfo[]> {
    const { store } = this.#images;
    return Promise.all(store.list().map((record) => describeImage(store, record)));
  }

  async get(reference: string): Promise<ImageInfo> {
    return describeImage(this.#images.store, this.find(reference));
  }

  async history(reference: string): Promise<readonly HistoryLayer[]> {
    const { layers, disk } = this.find(reference);
    const { store } = this.#images;
    return (disk === null ? layers : [disk, ...layers]).map((id) => {
      const layer = store.layer(id);
      return {
        id,
        from: layer?.from ?? "?",
        sizeBytes: layer?.sizeBytes ?? null,
        createdAt: layer?.createdAt ?? null,
        diffId: layer?.diffId ?? null,
      };
    });
  }

  async *log(reference: string, { signal }: { readonly signal: AbortSignal }): AsyncGenerator<BuildLogLine> {
    const { id, buildId } = this.find(reference);
    const build = buildId === null ? undefined : this.#images.builder.get(buildId);
    if (build === undefined) throw noLog(id, buildId);
    yield* build.log({ signal });
  }

  async remove(reference: string): Promise<PruneResult> {
    return counted(await this.#images.store.remove(this.#findBroken(reference)));
  }

  async setName(reference: string, name: string): Promise<ImageInfo> {
    const record = this.find(reference);
    // A key's image stays the key's: a name for everybody would show it to everybody.
    this.#images.store.setName({ ...this.#nameFrom(name, "NEWNAME"), owner: record.owner }, record.id);
    return describeImage(this.#images.store, record);
  }

  async removeName(name: string): Promise<void> {
    const parsed = this.#nameFrom(name, "NAME");
    const { store } = this.#images;
    if (store.removeName(parsed)) return;
    const theirs = store.names().filter((known) => known.name.name === parsed.name && known.name.tag === parsed.tag);
    const [only] = theirs;
    if (only !== undefined && theirs.length === 1 && store.removeName(only.name)) return;
    if (theirs.length > 1) {
      const whose = theirs.map((known) => `${known.imageId} (of ${known.name.owner})`).join(", ");
      throw new HoldfastError("invalid_argument", `NAME: several keys have an image called ${name}: ${whose}`, {
        hint: "`holdfast image untag` with --url and a key's own --api-key takes that key's name away.",
        details: { field: "NAME" },
      });
    }
    // What there is instead is in the error.
    store.require(name, null);
    throw new HoldfastError("image_not_found", `no image is called ${this.#module.formatImageName(parsed)}`);
  }

  async prune(options: { readonly all: boolean; readonly unusedForMs: number | undefined }): Promise<PruneResult> {
    // Sandboxes of dead processes hold layers.
    await this.#local.engine.sweep({ which: "abandoned" });
    const { all, unusedForMs } = options;
    return counted(await this.#images.store.prune({ all, ...(unusedForMs === undefined ? {} : { unusedForMs }) }));
  }

  async import(request: ImportRequest, options: MoveOptions): Promise<ImageInfo> {
    const { context, store } = this.#images;
    const source = request.path === null ? { stream: process.stdin } : { path: request.path };
    const record = await this.#module.importImage(context, source, {
      owner: null,
      names: request.names.map((name) => this.#nameFrom(name, "--tag")),
      reference: request.reference,
      platform: request.platform,
      ...options,
    });
    return describeImage(store, record);
  }

  async export(reference: string, request: ExportRequest, options: MoveOptions): Promise<number> {
    const record = this.find(reference);
    const { format, compression, path } = request;
    const device = path === null ? undefined : await openDevice(path);
    try {
      const { sizeBytes } = await this.#module.exportImage(this.#images.context, record, {
        format,
        compression,
        to: path === null ? process.stdout : (device ?? { path }),
        names: this.#namesOf(record, reference),
        ...options,
      });
      if (device !== undefined) await finished(device.end());
      return sizeBytes;
    } catch (error) {
      throw writeError(error, path ?? "stdout");
    } finally {
      device?.destroy();
    }
  }

  async archive(
    reference: string,
    { format, compression }: Omit<ExportRequest, "path">,
    { signal }: Pick<MoveOptions, "signal">,
  ): Promise<ReadableStream<Uint8Array>> {
    const record = this.find(reference);
    const stream = new PassThrough();
    const names = this.#namesOf(record, reference);
    this.#module.exportImage(this.#images.context, record, { format, compression, to: stream, names, signal }).then(
      () => void stream.end(),
      (error: unknown) => void stream.destroy(HoldfastError.from(error)),
    );
    // What keeps it from beginning is told here, and not as a stream that breaks off.
    await once(stream, "readable");
    return Readable.toWeb(stream) as ReadableStream<Uint8Array>;
  }

  async pull(
    reference: string,
    request: RegistryFlags & { readonly names: readonly string[]; readonly platform: string | undefined },
    options: MoveOptions,
  ): Promise<ImageInfo> {
    const { names, platform } = request;
    const record = await this.#module.pullImage(this.#images.context, reference, {
      owner: null,
      names: names.length === 0 ? undefined : names.map((name) => this.#nameFrom(name, "--tag")),
      platform,
      ...registryOptions(request),
      ...options,
    });
    return describeImage(this.#images.store, record);
  }

  async push(
    reference: string,
    target: string,
    request: RegistryFlags & { readonly compression: ExportRequest["compression"] },
    options: MoveOptions,
  ): Promise<{ readonly digest: string }> {
    const record = this.find(reference);
    const how = { compression: request.compression, ...registryOptions(request), ...options };
    return this.#module.pushImage(this.#images.context, record, target, how);
  }

  async deliverToContainer(reference: string, request: ContainerRequest, options: MoveOptions): Promise<void> {
    const { container, directory, socketPath, fileName, format, compression } = request;
    const record = this.find(reference);
    await this.#module.deliverImage(this.#images.context, record, {
      to: { kind: "container", container, path: directory, socketPath },
      fileName,
      format,
      compression,
      names: this.#namesOf(record, reference),
      ...options,
    });
  }

  close(): Promise<void> {
    return this.#local.close();
  }

  find(reference: string): ImageRecord {
    return this.#module.requireForOperator(this.#images.store, reference);
  }

  /** One whose layers or record are gone can still be removed. */
  #findBroken(reference: string): ImageRecord["id"] {
    const { store } = this.#images;
    const found = store.list().find(({ id }) => id === reference) ?? store.find(reference, null);
    if (found !== undefined) return found.id;
    if (/^img[a-z0-9]{20}$/.test(reference)) return reference as ImageRecord["id"];
    return this.find(reference).id;
  }

  #namesOf(record: ImageRecord, reference: string): ImageName[] {
    const names = this.#images.store.names({ imageId: record.id }).map(({ name }) => name);
    return this.#module.namesAskedFor(names, reference);
  }

  #nameFrom(text: string, field: string): ImageName {
    const { name, tag, digest } = this.#module.parseImageReference(text, field);
    if (digest !== undefined) {
      throw new HoldfastError("invalid_argument", `${field}: expected a name without a digest, got "${text}"`, {
        details: { field },
      });
    }
    return { owner: null, name, tag: tag ?? "latest" };
  }
}

/** A pipe or a device cannot be replaced: it is written to as it is. */
async function openDevice(path: string): Promise<Writable | undefined> {
  const there = await stat(path).catch(() => undefined);
  if (there === undefined || there.isFile() || there.isDirectory()) return undefined;
  // Whoever writes to it hears of a failure, if it is still there to hear.
  return createWriteStream(path).on("error", () => {});
}

/** Steps are looked at before the line that came after they changed, but not for every line. */
async function followLog(
  log: AsyncIterable<BuildLogEntry>,
  { tell, onLog }: { readonly tell: () => void; readonly onLog: (line: BuildLogLine) => void },
): Promise<void> {
  let step: string | undefined;
  let lastAt = 0;
  for await (const entry of log) {
    const now = performance.now();
    if (entry.step !== step || now - lastAt >= LOOK_MS) {
      tell();
      lastAt = now;
      ({ step } = entry);
    }
    onLog(entry);
  }
}

function stepsOf({ id, state, steps, cached }: BuildInfo) {
  return { id, state, steps, cached };
}

async function* chunksOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  } finally {
    await reader.cancel().catch(() => {});
  }
}

function registryOptions({ auth, plainHttp }: RegistryFlags) {
  return { auth: authOf(auth), plainHttp };
}

/** Whoever runs this may use what docker knows of them. */
function authOf(given: RegistryFlags["auth"]): RegistryAuth {
  return given === undefined ? { kind: "docker-config" } : { kind: "password", ...given };
}

function counted(report: {
  readonly images: readonly unknown[];
  readonly layers: readonly unknown[];
  readonly blobs: number;
  readonly builds: number;
  readonly freedBytes: number;
}): PruneResult {
  return { ...report, images: report.images.length, layers: report.layers.length };
}

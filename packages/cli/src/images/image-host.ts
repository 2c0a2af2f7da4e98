/** Where images lie: on this machine, in files that several processes share, or behind a server. Commands do not see which. */
import type { BuildInfo, BuildLogLine, ImageInfo, PruneResult } from "@holdfast/protocol";
import type { BuilderOptions, Image } from "@holdfast/recipe";
import type { TransferProgress } from "@holdfast/sdk";

/** What a build is doing, as far as it is shown. */
export type BuildSteps = Pick<BuildInfo, "id" | "state" | "steps" | "cached">;

export interface HostBuildOptions {
  readonly names: readonly string[];
  readonly builder: BuilderOptions;
  /** Runs every step again, whatever is known. */
  readonly again: boolean;
  readonly onLog: (line: BuildLogLine) => void;
  readonly onBuild: (build: BuildSteps) => void;
  readonly signal: AbortSignal;
}

export interface MoveOptions {
  readonly signal: AbortSignal;
  readonly onProgress: (progress: TransferProgress) => void;
}

export interface RegistryFlags {
  readonly auth: { readonly username: string; readonly password: string } | undefined;
  readonly plainHttp: boolean | undefined;
}

export const EXPORT_FORMATS = ["oci", "docker", "oci-directory"] as const;
export type ExportFormat = (typeof EXPORT_FORMATS)[number];
export const COMPRESSIONS = ["none", "gzip", "zstd"] as const;
export type Compression = (typeof COMPRESSIONS)[number];

export interface ExportRequest {
  readonly format: ExportFormat;
  readonly compression: Compression | undefined;
  /** A path, or null for stdout. */
  readonly path: string | null;
}

export interface ImportRequest {
  /** A path, or null for stdin. */
  readonly path: string | null;
  readonly names: readonly string[];
  readonly reference: string | undefined;
  readonly platform: string | undefined;
}

export interface HistoryLayer {
  readonly id: string;
  readonly from: string;
  readonly sizeBytes: number | null;
  readonly createdAt: string | null;
  readonly diffId: string | null;
}

export interface ImageHost {
  build(image: Image, options: HostBuildOptions): Promise<ImageInfo>;
  /** With what removing each would free. */
  list(): Promise<readonly ImageInfo[]>;
  get(reference: string): Promise<ImageInfo>;
  /** Uppermost first. */
  history(reference: string): Promise<readonly HistoryLayer[]>;
  /** Of the build that it came from. */
  log(reference: string, options: { readonly signal: AbortSignal }): AsyncIterable<BuildLogLine>;
  remove(reference: string): Promise<PruneResult>;
  setName(reference: string, name: string): Promise<ImageInfo>;
  removeName(name: string): Promise<void>;
  prune(options: { readonly all: boolean; readonly unusedForMs: number | undefined }): Promise<PruneResult>;
  import(request: ImportRequest, options: MoveOptions): Promise<ImageInfo>;
  /** How many bytes it came to. */
  export(reference: string, request: ExportRequest, options: MoveOptions): Promise<number>;
  /** The archive as a stream of bytes. */
  archive(
    reference: string,
    request: Omit<ExportRequest, "path">,
    options: Pick<MoveOptions, "signal">,
  ): Promise<ReadableStream<Uint8Array>>;
  pull(
    reference: string,
    request: RegistryFlags & { readonly names: readonly string[]; readonly platform: string | undefined },
    options: MoveOptions,
  ): Promise<ImageInfo>;
  /** The manifest's digest. */
  push(
    reference: string,
    target: string,
    request: RegistryFlags & { readonly compression: Compression | undefined },
    options: MoveOptions,
  ): Promise<{ readonly digest: string }>;
  /** As a file in a directory of a container of this machine's docker. */
  deliverToContainer(reference: string, request: ContainerRequest, options: MoveOptions): Promise<void>;
  close(): Promise<void>;
}

export interface ContainerRequest {
  readonly container: string;
  readonly directory: string;
  readonly fileName: string;
  readonly socketPath: string | undefined;
  readonly format: Exclude<ExportFormat, "oci-directory">;
  readonly compression: Compression | undefined;
}

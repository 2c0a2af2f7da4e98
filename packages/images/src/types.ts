/**
 * The contract of this package: images, what they are made of and how they come and go. Everything lies in files below the
 * state directory, so that the command line without a server and a running server work on the same images at the same time.
 *
 *   <state>/images/records/<imageId>.json      an image
 *   <state>/images/names/<owner>/<name>/<tag>  the id of the image it names
 *   <state>/images/layers/<layerId>.json       what is known of a layer (its files are in the engine's pool)
 *   <state>/images/steps/<chain hash>          the layer that a step came to (the step cache)
 *   <state>/images/blobs/sha256/<hex>          files of recipes, by content
 *   <state>/images/builds/<buildId>/           a build: its lease, state and log
 *   <state>/images/registry-blobs/<layerId>.json  which blobs of registries a layer came from or went to
 *   <state>/images/scratch/                    temporary files, unless HOLDFAST_SCRATCH_DIR says otherwise
 */
import type { ImageSource, LayerId, SandboxSpec } from "@holdfast/engine";
import type { CommandCause, SandboxId, SandboxLimits } from "@holdfast/protocol";
import type { BuilderOptions, Digest, Recipe, StartCommand } from "@holdfast/recipe";
import type { AuthFor } from "./registry/credentials.js";

export type ImageId = string & { readonly __brand: "ImageId" };
export type BuildId = string & { readonly __brand: "BuildId" };

/** Whose it is: a key's id, or null for the operator's, which everybody on this host may use. */
export type Owner = string | null;

/** How commands in it run. What OCI calls the config, and our start command. */
export interface ImageConfig {
  readonly env: Readonly<Record<string, string>>;
  readonly workdir: string | null;
  readonly user: string | null;
  readonly entrypoint: readonly string[] | null;
  readonly cmd: readonly string[] | null;
  readonly exposedPorts: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  readonly start: StartCommand | null;
  readonly architecture: string;
  readonly os: string;
}

/** What finalizing has measured: the image came up in this much memory. */
export interface ImageFloor {
  readonly memoryBytes: number;
  /** The most it held until it was ready; null if it has nothing to start. */
  readonly startPeakBytes: number | null;
  readonly readyMs: number | null;
  /** Of a wait of so many seconds: whether something listened on a port when they were over. Absent: not known. */
  readonly listens?: boolean | undefined;
}

export interface ImageRecord {
  readonly version: 1;
  readonly id: ImageId;
  readonly kind: "base" | "built" | "imported" | "snapshot";
  /** What it is, whatever it is called: the recipe's hash, an OCI config's digest, or a snapshot's own. */
  readonly digest: Digest;
  readonly owner: Owner;
  readonly createdAt: string;
  /** Uppermost first. Empty for a snapshot that lies on something that is not an image of ours. */
  readonly layers: readonly LayerId[];
  /** What a snapshot lies on if not on layers: such an image cannot leave this host. */
  readonly below: Exclude<ImageSource, { kind: "layers" }> | null;
  /** A snapshot's own files: a sandbox made of it starts with a copy of them as its disk. Not among `layers`. */
  readonly disk: LayerId | null;
  readonly config: ImageConfig;
  readonly floor: ImageFloor | null;
  /** What it was made on, if that is an image of this host. */
  readonly parent: ImageId | null;
  readonly fromSandbox: SandboxId | null;
  /** Its log is kept there. */
  readonly buildId: BuildId | null;
  readonly limits: Partial<Pick<SandboxLimits, "memoryBytes" | "cpuMillis" | "diskBytes">>;
}

export interface LayerRecord {
  readonly version: 1;
  readonly id: LayerId;
  readonly createdAt: string;
  /** Of its uncompressed tar, where known: imported layers by their manifest, others after their first export. */
  readonly diffId: Digest | null;
  readonly sizeBytes: number;
  /** For a person: `RUN make`, `imported`, `snapshot of i…`. */
  readonly from: string;
}

export interface ImageName {
  readonly owner: Owner;
  /** `team/app`, `localhost:5000/app`. */
  readonly name: string;
  readonly tag: string;
}

export interface NamedImage {
  readonly name: ImageName;
  readonly imageId: ImageId;
  readonly since: string;
}

export interface ImageSizes {
  /** All its layers. */
  readonly totalBytes: number;
  /** What removing it would free. */
  readonly uniqueBytes: number;
  readonly sharedBytes: number;
}

export interface PruneReport {
  readonly images: readonly ImageId[];
  readonly layers: readonly LayerId[];
  readonly blobs: number;
  readonly builds: number;
  readonly freedBytes: number;
}

/** Images, names, layers and blobs. Safe with several processes at once; SIGKILL leaves nothing half. */
export interface ImageStore {
  readonly directory: string;
  get(id: ImageId): ImageRecord | undefined;
  list(options?: { readonly owner?: Owner }): ImageRecord[];
  /** Writes it, whole or not at all. */
  put(record: ImageRecord): void;
  /** By id, by digest (or its first 12 digits or more), or by name: the owner's own first, then the operator's. */
  find(reference: string, owner: Owner): ImageRecord | undefined;
  /** `image_not_found`, with what there is. */
  require(reference: string, owner: Owner): ImageRecord;
  /** Moves the name if it stands for another image. */
  setName(name: ImageName, imageId: ImageId): void;
  removeName(name: ImageName): boolean;
  names(options?: { readonly owner?: Owner; readonly imageId?: ImageId }): NamedImage[];
  /** The image and its names; its layers go if nobody else needs them. `image_in_use` if sandboxes or images stand on it. */
  remove(id: ImageId): Promise<PruneReport>;
  sizes(record: ImageRecord): Promise<ImageSizes>;

  /** Layers that the record names and that are gone: the image is broken. */
  missingLayers(record: ImageRecord): LayerId[];
  /** Files of the store that cannot be read, and why. */
  problems(): readonly { readonly path: string; readonly problem: string }[];

  layer(id: LayerId): LayerRecord | undefined;
  layerByDiffId(diffId: Digest): LayerRecord | undefined;
  putLayer(record: LayerRecord): void;
  /** The step cache. Finding one marks it as used now. */
  cachedStep(chain: Digest): LayerId | undefined;
  cacheStep(chain: Digest, layer: LayerId): void;

  readonly blobs: BlobStore;
  /**
   * Removes what nobody needs: layers that no image, cached step, build or sandbox stands on, finished builds' leftovers,
   * blobs, drafts and scratch files of dead processes. `all`: also step caches and images without a name.
   */
  prune(options?: { readonly all?: boolean; readonly unusedForMs?: number }): Promise<PruneReport>;
  /** Removes what processes that were killed have left half done; quick enough for every start. */
  recover(): Promise<void>;
}

export interface BlobStore {
  has(digest: Digest): boolean;
  missing(digests: readonly Digest[]): Digest[];
  /** Streams it in, checks the digest (`invalid_argument` if it differs), appears whole. Being there already is fine. */
  put(
    digest: Digest,
    content: AsyncIterable<Uint8Array>,
    options?: { readonly signal?: AbortSignal; readonly maxBytes?: number },
  ): Promise<void>;
  /** For content whose digest is not known before. */
  add(
    content: AsyncIterable<Uint8Array>,
    options?: { readonly signal?: AbortSignal; readonly maxBytes?: number },
  ): Promise<{ readonly digest: Digest; readonly sizeBytes: number }>;
  path(digest: Digest): string;
  sizeBytes(digest: Digest): number;
}

export const BUILD_STATES = ["waiting", "building", "ready", "failed", "canceled"] as const;
export type BuildState = (typeof BUILD_STATES)[number];

export interface BuildLogEntry {
  /** From 0, without gaps. */
  readonly seq: number;
  readonly at: string;
  /** `base`, `1` … `n`, `finalize`. */
  readonly step: string;
  readonly stream: "stdout" | "stderr" | "info";
  /** One line, without its end. */
  readonly text: string;
}

export interface BuildStepStatus {
  readonly step: string;
  /** For a person: `RUN make -j4`. */
  readonly title: string;
  readonly state: "waiting" | "running" | "cached" | "done" | "failed";
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly memoryPeakBytes: number | null;
}

/** Why it failed. Also the `details` of the `build_failed` error. */
export interface BuildFailure {
  readonly step: string;
  readonly message: string;
  readonly hint: string | null;
  readonly cause: CommandCause | null;
  readonly limitBytes: number | null;
  readonly peakBytes: number | null;
  readonly suggestedMemoryMb: number | null;
  /** The last lines. */
  readonly tail: readonly BuildLogEntry[];
}

export interface BuildInfo {
  readonly id: BuildId;
  readonly owner: Owner;
  readonly state: BuildState;
  /** The content hash; null until the base is resolved. */
  readonly digest: Digest | null;
  readonly names: readonly ImageName[];
  readonly steps: readonly BuildStepStatus[];
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly imageId: ImageId | null;
  readonly failure: BuildFailure | null;
  /** True if nothing had to be run. */
  readonly cached: boolean;
}

export interface BuildRequest {
  readonly recipe: Recipe;
  readonly owner: Owner;
  readonly names?: readonly ImageName[] | undefined;
  readonly builder?: BuilderOptions | undefined;
  /** Given by the caller who has promised it already (E2B does); made up if absent. */
  readonly id?: BuildId | undefined;
  /** Runs every step again, from this one on (0: all). */
  readonly forceFrom?: number | undefined;
  /** Recorded with the image, for sandboxes that do not say. */
  readonly limits?: ImageRecord["limits"] | undefined;
  /**
   * Whom to say we are to a registry (`docker.io`, `localhost:5000`) that an image is pulled from for this build; nobody if
   * absent. Never written down.
   */
  readonly authFor?: AuthFor | undefined;
}

export interface Build {
  readonly id: BuildId;
  info(): BuildInfo;
  /** All of it from `from` on, then as it comes, until the build has ended or the signal. */
  log(options?: { readonly from?: number; readonly signal?: AbortSignal }): AsyncIterable<BuildLogEntry>;
  /** Rejects with `build_failed` or `canceled`. */
  readonly image: Promise<ImageRecord>;
  /** This asker's; the work itself stops when nobody is left who asked for it. */
  cancel(by: string): Promise<void>;
}

export interface Builder {
  /**
   * Starts it, or joins one of the same content that is under way, of whatever process; or is done at once if the image is
   * there. Bad input is refused before anything runs.
   */
  start(request: BuildRequest): Promise<Build>;
  /** One that runs or has ended and is remembered. */
  get(id: BuildId): Build | undefined;
  list(options?: { readonly owner?: Owner }): BuildInfo[];
  /** Builds of dead processes become failed ones; their sandboxes are swept. */
  recover(): Promise<void>;
  close(): Promise<void>;
}

/** Memory that was asked for, and what it came to. */
export interface EffectiveMemory {
  readonly requestedBytes: number | null;
  readonly effectiveBytes: number;
  readonly floorBytes: number | null;
  /** Null if it is what was asked for. */
  readonly reason: string | null;
}

/** What a sandbox of this image is made with. */
export interface ImageSandbox {
  readonly spec: Pick<SandboxSpec, "image" | "env" | "limits" | "defaultUser" | "workdir" | "disk">;
  readonly memory: EffectiveMemory;
}

/** What the server's own API says about images, builds, snapshots and forks, as JSON. See api.ts for the conventions. */
import type { ErrorBody, ErrorLine, SandboxInfo } from "./api.js";
import type { CommandCause } from "./causes.js";

export interface ImageInfo {
  readonly id: string;
  readonly kind: "base" | "built" | "imported" | "snapshot";
  readonly digest: string;
  /** `name:tag`, those that the caller may see. */
  readonly names: readonly string[];
  /** True for the operator's, which everybody on this host may use. */
  readonly shared: boolean;
  /** For the operator: the key that it belongs to, null if it is everybody's. Keys are not told of each other. */
  readonly owner?: string | null | undefined;
  readonly createdAt: string;
  readonly sizeBytes: number;
  /** What removing it would free; null in a list. */
  readonly uniqueBytes: number | null;
  readonly layers: number;
  readonly config: {
    readonly env: Readonly<Record<string, string>>;
    readonly workdir: string | null;
    readonly user: string | null;
    readonly entrypoint: readonly string[] | null;
    readonly cmd: readonly string[] | null;
    readonly exposedPorts: readonly string[];
    readonly labels: Readonly<Record<string, string>>;
    readonly start: { readonly command: string; readonly readyWhen: string | null } | null;
  };
  /** What it may be run with at least, as its build has measured. */
  readonly floor: {
    readonly memoryBytes: number;
    readonly startPeakBytes: number | null;
    readonly readyMs: number | null;
  } | null;
  readonly parent: string | null;
  readonly fromSandbox: string | null;
  readonly buildId: string | null;
  /** What comes back with it: files only, on this engine. */
  readonly holds: "files";
}

export interface ImageList {
  readonly images: readonly ImageInfo[];
}

export interface MissingBlobsBody {
  readonly digests: readonly string[];
}

export interface MissingBlobs {
  readonly missing: readonly string[];
}

/** The recipe and the builder's options are those of @holdfast/recipe; the server checks them. */
export interface StartBuildBody {
  readonly recipe: unknown;
  readonly builder?: unknown;
  /** `name` or `name:tag`. */
  readonly names?: readonly string[];
  /** Runs every step again from this one on (0: all). */
  readonly forceFrom?: number;
  /** By the name of the registry: `registry.example.com`, `docker.io`. Never written down. */
  readonly registryAuths?: Readonly<Record<string, RegistryAuth>>;
}

export interface BuildStepInfo {
  readonly step: string;
  readonly title: string;
  readonly state: "waiting" | "running" | "cached" | "done" | "failed";
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly memoryPeakBytes: number | null;
}

export interface BuildInfo {
  readonly id: string;
  readonly state: "waiting" | "building" | "ready" | "failed" | "canceled";
  readonly digest: string | null;
  readonly names: readonly string[];
  readonly steps: readonly BuildStepInfo[];
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly imageId: string | null;
  readonly cached: boolean;
  /** An error body of code `build_failed`; its details say the step, the cause, the limit, the peak and the next size. */
  readonly error: ErrorBody | null;
  readonly cause: CommandCause | null;
}

export interface BuildList {
  readonly builds: readonly BuildInfo[];
}

export interface BuildLogLine {
  readonly seq: number;
  readonly at: string;
  readonly step: string;
  readonly stream: "stdout" | "stderr" | "info";
  readonly text: string;
}

/** One line each of a build's log: everything so far, then as it comes. `build` comes whenever a step begins or ends. */
export type BuildLine =
  | { readonly type: "build"; readonly build: BuildInfo }
  | ({ readonly type: "log" } & BuildLogLine)
  | { readonly type: "keepalive" }
  | { readonly type: "ended"; readonly build: BuildInfo }
  | ErrorLine;

export interface NameImageBody {
  readonly name: string;
}

export interface PruneBody {
  /** Also the step cache and images without a name. */
  readonly all?: boolean;
  readonly unusedForMs?: number;
}

export interface PruneResult {
  readonly images: number;
  readonly layers: number;
  readonly blobs: number;
  readonly builds: number;
  readonly freedBytes: number;
}

export interface RegistryAuth {
  readonly username: string;
  readonly password: string;
}

export interface PullBody {
  readonly reference: string;
  readonly names?: readonly string[];
  readonly auth?: RegistryAuth;
  readonly plainHttp?: boolean;
  readonly platform?: string;
}

export interface PushBody {
  /** Where to; the image is the one in the path. */
  readonly reference: string;
  readonly auth?: RegistryAuth;
  readonly plainHttp?: boolean;
  readonly compression?: "none" | "gzip" | "zstd";
}

/** One line each while an image is pulled, pushed or imported. */
export type TransferLine =
  | {
      readonly type: "progress";
      readonly phase: string;
      readonly what: string;
      readonly doneBytes: number;
      readonly totalBytes: number | null;
    }
  | { readonly type: "keepalive" }
  | { readonly type: "image"; readonly image: ImageInfo }
  | { readonly type: "pushed"; readonly digest: string }
  | ErrorLine;

export interface SnapshotBody {
  readonly name?: string;
}

export interface SnapshotInfo {
  readonly image: ImageInfo;
  readonly holds: "files";
  /** `clone`: took the same time whatever its size. `copy`: the pool cannot do that. */
  readonly method: "clone" | "copy";
  readonly sizeBytes: number;
  /** How long the sandbox stood still, and how long of that its writes took to reach the disk. */
  readonly frozenMs: number;
  readonly syncMs: number;
}

export interface ForkBody {
  /** 1 to 100; default 1. */
  readonly count?: number;
  readonly timeoutMs?: number;
}

export interface ForkList {
  readonly forks: readonly (
    | { readonly sandbox: SandboxInfo; readonly restored: "files" }
    | { readonly error: ErrorBody }
  )[];
  readonly method: "clone" | "copy";
}

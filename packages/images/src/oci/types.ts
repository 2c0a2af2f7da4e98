/**
 * OCI's and Docker's formats, as far as images use them. Everything here comes from outside: it is checked by
 * parse-manifest.ts and config.ts before it gets these types.
 */
import type { Digest } from "@holdfast/recipe";
import type { Compression } from "../layers/compression.js";

export const MEDIA_TYPES = {
  ociIndex: "application/vnd.oci.image.index.v1+json",
  ociManifest: "application/vnd.oci.image.manifest.v1+json",
  ociConfig: "application/vnd.oci.image.config.v1+json",
  ociLayer: "application/vnd.oci.image.layer.v1.tar",
  dockerIndex: "application/vnd.docker.distribution.manifest.list.v2+json",
  dockerManifest: "application/vnd.docker.distribution.manifest.v2+json",
  dockerConfig: "application/vnd.docker.container.image.v1+json",
  dockerLayer: "application/vnd.docker.image.rootfs.diff.tar",
} as const;

export const INDEX_MEDIA_TYPES: readonly string[] = [MEDIA_TYPES.ociIndex, MEDIA_TYPES.dockerIndex];
export const MANIFEST_MEDIA_TYPES: readonly string[] = [MEDIA_TYPES.ociManifest, MEDIA_TYPES.dockerManifest];
export const CONFIG_MEDIA_TYPES: readonly string[] = [MEDIA_TYPES.ociConfig, MEDIA_TYPES.dockerConfig];

/** By media type, how a layer is compressed. */
export const LAYER_COMPRESSIONS: Readonly<Record<string, Compression>> = {
  [MEDIA_TYPES.ociLayer]: "none",
  [`${MEDIA_TYPES.ociLayer}+gzip`]: "gzip",
  [`${MEDIA_TYPES.ociLayer}+zstd`]: "zstd",
  [MEDIA_TYPES.dockerLayer]: "none",
  [`${MEDIA_TYPES.dockerLayer}.gzip`]: "gzip",
  [`${MEDIA_TYPES.dockerLayer}.zstd`]: "zstd",
};

export function ociLayerMediaType(compression: Compression): string {
  return compression === "none" ? MEDIA_TYPES.ociLayer : `${MEDIA_TYPES.ociLayer}+${compression}`;
}

export const REF_NAME = "org.opencontainers.image.ref.name";
export const CONTAINERD_NAME = "io.containerd.image.name";

export const MAX_MANIFEST_BYTES = 4 * 1024 * 1024;
export const MAX_CONFIG_BYTES = 4 * 1024 * 1024;
export const MAX_LAYERS = 128;

export interface Platform {
  readonly os: string;
  readonly architecture: string;
  readonly variant?: string | undefined;
}

export interface Descriptor {
  readonly mediaType: string;
  readonly digest: Digest;
  readonly size: number;
  readonly platform?: Platform | undefined;
  readonly annotations?: Readonly<Record<string, string>> | undefined;
}

export interface OciManifest {
  readonly schemaVersion: 2;
  readonly mediaType: string;
  readonly config: Descriptor;
  /** Lowest first. */
  readonly layers: readonly Descriptor[];
  readonly annotations?: Readonly<Record<string, string>> | undefined;
}

export interface OciIndex {
  readonly schemaVersion: 2;
  readonly mediaType: string;
  readonly manifests: readonly Descriptor[];
  readonly annotations?: Readonly<Record<string, string>> | undefined;
}

export interface OciHistory {
  readonly created?: string | undefined;
  readonly created_by?: string | undefined;
  readonly author?: string | undefined;
  readonly comment?: string | undefined;
  readonly empty_layer?: boolean | undefined;
}

/** What an image's `config` blob says, in OCI's own spelling. */
export interface OciConfig {
  readonly created?: string | undefined;
  readonly author?: string | undefined;
  readonly architecture: string;
  readonly os: string;
  readonly variant?: string | undefined;
  readonly config: {
    readonly User?: string | undefined;
    readonly ExposedPorts?: Readonly<Record<string, Record<string, never>>> | undefined;
    readonly Env?: readonly string[] | undefined;
    readonly Entrypoint?: readonly string[] | undefined;
    readonly Cmd?: readonly string[] | undefined;
    readonly WorkingDir?: string | undefined;
    readonly Labels?: Readonly<Record<string, string>> | undefined;
  };
  readonly rootfs: { readonly type: "layers"; readonly diff_ids: readonly Digest[] };
  readonly history?: readonly OciHistory[] | undefined;
}

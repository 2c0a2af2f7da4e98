import { invalidArgument } from "@holdfast/protocol";
import { imageInvalid } from "./read-json.js";
import type { Descriptor, Platform } from "./types.js";

/** Node's names of processors, as OCI spells them. */
const ARCHITECTURES: Readonly<Record<string, string>> = {
  x64: "amd64",
  ia32: "386",
  arm64: "arm64",
  arm: "arm",
  riscv64: "riscv64",
  ppc64: "ppc64le",
  s390x: "s390x",
};

export function hostPlatform(): Platform {
  return { os: "linux", architecture: ARCHITECTURES[process.arch] ?? process.arch };
}

/** `linux/amd64`, `linux/arm64/v8`, or the processor alone. */
export function parsePlatform(text: string, field = "platform"): Platform {
  const parts = text.split("/");
  if (parts.length > 3 || parts.some((part) => !/^[a-z0-9_.-]{1,32}$/.test(part))) {
    throw invalidArgument(field, text, "os/architecture[/variant], such as linux/amd64");
  }
  if (parts.length === 1) return { os: "linux", architecture: parts[0] as string };
  const [os, architecture, variant] = parts as [string, string, string | undefined];
  return { os, architecture, variant };
}

export function formatPlatform({ os, architecture, variant }: Platform): string {
  return variant === undefined || variant === "" ? `${os}/${architecture}` : `${os}/${architecture}/${variant}`;
}

/** The variants that a processor of the wanted kind runs, best first. */
function variantRank(variant: string | undefined, wanted: Platform): number {
  const exact = wanted.variant ?? (wanted.architecture === "arm64" ? "v8" : undefined);
  const has = variant === "" ? undefined : variant;
  if (has === exact) return 0;
  if (has === undefined) return 1;
  // A variant that nobody asked for may need more than this processor has (amd64/v3); a variant asked for must be that.
  return wanted.variant === undefined ? 2 : Number.POSITIVE_INFINITY;
}

export function isSamePlatform(platform: Platform, wanted: Platform): boolean {
  return platform.os === wanted.os && platform.architecture === wanted.architecture;
}

/** Build tools put what they know of a build beside its images, as manifests of no platform. */
export function isAttestation(descriptor: Descriptor): boolean {
  return (
    descriptor.annotations?.["vnd.docker.reference.type"] === "attestation-manifest" ||
    (descriptor.platform?.os === "unknown" && descriptor.platform.architecture === "unknown")
  );
}

/** Of a list for several platforms the one for this host, or the one asked for. */
export function choosePlatform(
  descriptors: readonly Descriptor[],
  options: { readonly wanted?: Platform | undefined; readonly what: string },
): Descriptor {
  const wanted = options.wanted ?? hostPlatform();
  const images = descriptors.filter((descriptor) => !isAttestation(descriptor));
  const fitting = images
    .filter(({ platform }) => platform !== undefined && isSamePlatform(platform, wanted))
    .map((descriptor) => ({ descriptor, rank: variantRank(descriptor.platform?.variant, wanted) }))
    .filter(({ rank }) => Number.isFinite(rank))
    .sort((left, right) => left.rank - right.rank);
  const best = fitting[0]?.descriptor;
  if (best !== undefined) return best;
  // One that does not say is what its config says, which is looked at later.
  const only = images.length === 1 ? images[0] : undefined;
  if (only !== undefined && only.platform === undefined) return only;
  const there = images.map(({ platform }) =>
    platform === undefined ? "one that does not say" : formatPlatform(platform),
  );
  throw imageInvalid(
    `${options.what}: nothing for ${formatPlatform(wanted)} in it`,
    there.length === 0 ? "It lists no images at all." : `There is ${[...new Set(there)].join(", ")}.`,
    { wanted: formatPlatform(wanted), platforms: there },
  );
}

/** Builds and names, as our own API shows them. */
import { type BuildInfo as Build, type BuildFailure, formatImageName, type NamedImage } from "@holdfast/images";
import { type BuildInfo, HoldfastError } from "@holdfast/protocol";

/** For many images at once: asked for by image, all names are read for each of them. */
export function namesById(named: readonly NamedImage[]): Map<string, NamedImage[]> {
  const byId = new Map<string, NamedImage[]>();
  for (const one of named) {
    const others = byId.get(one.imageId);
    if (others === undefined) byId.set(one.imageId, [one]);
    else others.push(one);
  }
  return byId;
}

export function buildError(failure: BuildFailure): HoldfastError {
  const { message, hint, ...details } = failure;
  return new HoldfastError("build_failed", message, { hint: hint ?? undefined, details: { ...details } });
}

export function buildInfo(build: Build): BuildInfo {
  return {
    id: build.id,
    state: build.state,
    digest: build.digest,
    names: build.names.map(formatImageName),
    steps: build.steps,
    createdAt: build.createdAt,
    startedAt: build.startedAt,
    endedAt: build.endedAt,
    imageId: build.imageId,
    cached: build.cached,
    error: build.failure === null ? null : buildError(build.failure).toJSON(),
    cause: build.failure?.cause ?? null,
  };
}

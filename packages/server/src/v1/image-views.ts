/** Images and builds, as our own API shows them. */
import type {
  BuildInfo as Build,
  BuildFailure,
  ImageRecord,
  ImageSizes,
  ImageStore,
  NamedImage,
  Owner,
} from "@holdfast/images";
import { type BuildInfo, HoldfastError, type ImageInfo } from "@holdfast/protocol";
import type { ReadyWhen } from "@holdfast/recipe";

export const nameText = (name: { readonly name: string; readonly tag: string }): string => `${name.name}:${name.tag}`;

function readyText(ready: ReadyWhen | undefined): string | null {
  switch (ready?.kind) {
    case undefined:
      return null;
    case "port":
      return `port ${ready.port}`;
    case "seconds":
      return `${ready.seconds} seconds`;
    case "command":
      return ready.command;
  }
}

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

/** `viewer`: null sees every name. `names`: those that the viewer sees, if they are known. */
export function imageInfo(
  store: ImageStore,
  record: ImageRecord,
  options: {
    readonly viewer: Owner;
    readonly sizes?: ImageSizes | undefined;
    readonly names?: readonly NamedImage[] | undefined;
  },
): ImageInfo {
  const { config } = record;
  const seen =
    options.names ?? store.names({ imageId: record.id, ...(options.viewer === null ? {} : { owner: options.viewer }) });
  const names = seen.map(({ name }) => nameText(name));
  return {
    id: record.id,
    kind: record.kind,
    digest: record.digest,
    names,
    shared: record.owner === null,
    ...(options.viewer === null ? { owner: record.owner } : {}),
    createdAt: record.createdAt,
    sizeBytes: options.sizes?.totalBytes ?? sizeOf(store, record),
    uniqueBytes: options.sizes?.uniqueBytes ?? null,
    layers: record.layers.length + (record.disk === null ? 0 : 1),
    config: {
      env: config.env,
      workdir: config.workdir,
      user: config.user,
      entrypoint: config.entrypoint,
      cmd: config.cmd,
      exposedPorts: config.exposedPorts,
      labels: config.labels,
      start:
        config.start === null ? null : { command: config.start.command, readyWhen: readyText(config.start.readyWhen) },
    },
    floor: record.floor,
    parent: record.parent,
    fromSandbox: record.fromSandbox,
    buildId: record.buildId,
    holds: "files",
  };
}

function sizeOf(store: ImageStore, record: ImageRecord): number {
  const layers = record.disk === null ? record.layers : [record.disk, ...record.layers];
  return layers.reduce((sum, id) => sum + (store.layer(id)?.sizeBytes ?? 0), 0);
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
    names: build.names.map(nameText),
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

/** An image in the words of the API, so that it is shown the same whoever was asked: a server, or the command line without one. */
import type { ImageInfo } from "@holdfast/protocol";
import type { ReadyWhen } from "@holdfast/recipe";
import { layersOf } from "../store/records.js";
import { formatImageName } from "../store/reference.js";
import type { ImageRecord, ImageSizes, ImageStore, NamedImage, Owner } from "../types.js";

/** `viewer`: null sees every name, and whose it is. `names`: those that the viewer sees, if they are known. */
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
  return {
    id: record.id,
    kind: record.kind,
    digest: record.digest,
    names: seen.map(({ name }) => formatImageName(name)),
    shared: record.owner === null,
    ...(options.viewer === null ? { owner: record.owner } : {}),
    createdAt: record.createdAt,
    sizeBytes: options.sizes?.totalBytes ?? sizeOf(store, record),
    uniqueBytes: options.sizes?.uniqueBytes ?? null,
    layers: layersOf(record).length,
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
  return layersOf(record).reduce((sum, id) => sum + (store.layer(id)?.sizeBytes ?? 0), 0);
}

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

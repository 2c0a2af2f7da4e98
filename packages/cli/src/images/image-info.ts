/** An image of this machine in the words of the API, so that it is shown the same whoever was asked. */
import type { ImageRecord, ImageStore } from "@holdfast/images";
import type { ImageInfo } from "@holdfast/protocol";
import type { ReadyWhen } from "@holdfast/recipe";

export async function imageInfo(store: ImageStore, record: ImageRecord): Promise<ImageInfo> {
  const { formatImageName } = await import("@holdfast/images");
  const { config } = record;
  const { totalBytes, uniqueBytes } = await store.sizes(record);
  return {
    id: record.id,
    kind: record.kind,
    digest: record.digest,
    names: store.names({ imageId: record.id }).map(({ name }) => formatImageName(name)),
    shared: record.owner === null,
    owner: record.owner,
    createdAt: record.createdAt,
    sizeBytes: totalBytes,
    uniqueBytes,
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

/** `holdfast image deliver`: an image, as an archive, into a running container or sandbox. */
import { posix } from "node:path";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { ServerClient } from "../client/server-client.js";
import { note } from "../text/notes.js";
import { counting } from "./counting.js";
import type { Compression, ExportFormat } from "./image-host.js";
import type { ImageHostFlags } from "./open-host.js";
import { withHost } from "./with-host.js";

export interface DeliverFlags extends ImageHostFlags {
  readonly format?: Exclude<ExportFormat, "oci-directory">;
  readonly compress?: Compression;
}

export interface DeliverTarget {
  readonly kind: "docker" | "sandbox";
  /** The container's name or id, or the sandbox's id. */
  readonly id: string;
  readonly directory: string;
  readonly fileName: string;
}

const TARGET = /^(docker|sandbox):\/\/([^/]+)(\/.*)?$/;
const DEFAULT_NAME = "image.tar";

export function parseTarget(text: string): DeliverTarget {
  const [, kind, id, path = "/"] = TARGET.exec(text) ?? [];
  if (kind === undefined || id === undefined || path.includes("\0")) {
    throw invalidArgument(
      "TARGET",
      text,
      "docker://CONTAINER/PATH or sandbox://ID/PATH, where a PATH that ends with / is a directory",
    );
  }
  const normal = posix.normalize(path);
  const isDirectory = normal.endsWith("/");
  return {
    kind: kind as DeliverTarget["kind"],
    id,
    directory: isDirectory ? normal : posix.dirname(normal),
    fileName: isDirectory ? DEFAULT_NAME : posix.basename(normal),
  };
}

export async function deliver(name: string, targetText: string, flags: DeliverFlags): Promise<void> {
  const target = parseTarget(targetText);
  const { format = "docker", compress: compression } = flags;
  const path = posix.join(target.directory, target.fileName);
  const how = { format, compression };
  if (target.kind === "docker") {
    const { id: container, directory, fileName } = target;
    const request = { container, directory, fileName, socketPath: dockerSocket(process.env.DOCKER_HOST), ...how };
    await withHost(flags, (host, options) => host.deliverToContainer(name, request, options), {
      alwaysNeedsScratch: true,
    });
  } else {
    const sandbox = await (await ServerClient.open(flags)).find(target.id);
    await withHost(flags, async (host, { signal, onProgress }) => {
      const archive = await host.archive(name, how, { signal });
      let broken: unknown;
      const content = counted(archive, {
        what: `${sandbox.id}:${path}`,
        onProgress,
        onBroken: (reason) => {
          broken = reason;
        },
      });
      try {
        // Whoever delivers may write anywhere; who owns it there is root, as with docker.
        await sandbox.files.write(path, content, { user: "root", signal });
      } catch (error) {
        // That the connection broke is only what came of it.
        throw broken ?? error;
      }
    });
  }
  note(`${name} is in ${target.kind === "docker" ? "container" : "sandbox"} ${target.id} as ${path}`);
}

function counted(
  stream: ReadableStream<Uint8Array>,
  options: Pick<Parameters<typeof counting>[1], "what" | "onProgress"> & {
    readonly onBroken: (reason: unknown) => void;
  },
): ReadableStream<Uint8Array> {
  const { onBroken, ...about } = options;
  const source = stream as unknown as AsyncIterable<Uint8Array>;
  const chunks = counting(source, { phase: "deliver", totalBytes: null, ...about });
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await chunks.next();
          if (done === true) controller.close();
          else controller.enqueue(value);
        } catch (reason) {
          onBroken(reason);
          throw reason;
        }
      },
      async cancel() {
        await chunks.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
}

/** Undefined: where docker is by default. */
function dockerSocket(host: string | undefined): string | undefined {
  if (host === undefined || host === "") return undefined;
  if (host.startsWith("unix://")) return host.slice("unix://".length);
  throw new HoldfastError("invalid_argument", `DOCKER_HOST: only unix:// is spoken here, not ${host}`, {
    details: { field: "DOCKER_HOST" },
  });
}

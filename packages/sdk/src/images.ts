/** Images on the server: built, listed, named, moved in and out. */
import type {
  BuildInfo,
  BuildList,
  BuildLogLine,
  ErrorLine,
  ImageInfo,
  ImageList,
  PruneResult,
  PullBody,
  PushBody,
  TransferLine,
} from "@holdfast/protocol";
import { HoldfastError } from "@holdfast/protocol";
import type { Image } from "@holdfast/recipe";
import { bodyStream } from "./body-stream.js";
import { type BuildOptions, buildImage, buildLines } from "./build.js";
import { chunksOf } from "./chunks.js";
import type { Waiting } from "./command.js";
import { lines } from "./json-lines.js";
import type { Content, Transport } from "./transport.js";

export interface TransferProgress {
  readonly phase: string;
  readonly what: string;
  readonly doneBytes: number;
  readonly totalBytes: number | null;
}

export interface TransferOptions extends Waiting {
  readonly onProgress?: ((progress: TransferProgress) => void) | undefined;
}

type Said = Exclude<TransferLine, ErrorLine | { readonly type: "keepalive" } | { readonly type: "progress" }>;

const pathOf = (image: string): string => `/images/${encodeURIComponent(image)}`;

export class Images {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Builds it, or is done at once if it is there. Rejects with `build_failed`: the step, the cause, the limit, the peak,
   * the next size to try and the last lines are in its details.
   */
  build(image: Image, options: BuildOptions = {}): Promise<ImageInfo> {
    return buildImage(this.#transport, image, options);
  }

  /** Your own builds, those that run and those that are remembered, newest first. */
  async builds(options: Waiting = {}): Promise<readonly BuildInfo[]> {
    const { builds }: BuildList = await this.#transport.json("GET", "/images/builds", { signal: options.signal });
    return builds;
  }

  /** Every line of a build's log, by the build's id; of one that still runs, as they come, until its end. */
  async *buildLog(buildId: string, options: Waiting = {}): AsyncGenerator<BuildLogLine> {
    for await (const said of buildLines(this.#transport, buildId, options)) {
      if (said.type !== "log") continue;
      const { type: _, ...line } = said;
      yield line;
    }
  }

  /** Your own and the operator's. */
  async list(options: Waiting = {}): Promise<readonly ImageInfo[]> {
    const { images }: ImageList = await this.#transport.json("GET", "/images", { signal: options.signal });
    return images;
  }

  /** By name, digest or id. */
  async get(image: string, options: Waiting = {}): Promise<ImageInfo> {
    return this.#transport.json("GET", pathOf(image), { signal: options.signal });
  }

  /** The image, its names, and the layers that nobody else needs. Refused with `image_in_use` while something stands on it. */
  async remove(image: string, options: Waiting = {}): Promise<PruneResult> {
    return this.#transport.json("DELETE", pathOf(image), { signal: options.signal });
  }

  /** Gives it one more name; if another image has it, it is taken from there. */
  async setName(image: string, name: string, options: Waiting = {}): Promise<ImageInfo> {
    return this.#transport.json("POST", `${pathOf(image)}/names`, {
      json: { name },
      signal: options.signal,
      repeatable: true,
    });
  }

  async removeName(image: string, name: string, options: Waiting = {}): Promise<ImageInfo> {
    return this.#transport.json("DELETE", `${pathOf(image)}/names`, { query: { name }, signal: options.signal });
  }

  /** A docker archive or an OCI layout as a tar, plain or gzipped. Streams; nothing is held in memory. */
  async import(
    content: Content,
    options: Waiting & {
      readonly name?: string | readonly string[] | undefined;
      /** Which one, of an archive that holds several. */
      readonly reference?: string | undefined;
      readonly platform?: string | undefined;
    } = {},
  ): Promise<ImageInfo> {
    const { signal, ...query } = options;
    return this.#transport.json("POST", "/images/import", { content, query, signal });
  }

  /** As an OCI layout or a docker archive, in a tar. */
  async export(
    image: string,
    options: Waiting & {
      readonly format?: "oci" | "docker" | undefined;
      readonly compression?: "none" | "gzip" | "zstd" | undefined;
    } = {},
  ): Promise<ReadableStream<Uint8Array>> {
    const { signal, ...query } = options;
    const response = await this.#transport.send("GET", `${pathOf(image)}/export`, { query, signal });
    return bodyStream(this.#transport, response, signal);
  }

  async pull(reference: string, options: TransferOptions & Omit<PullBody, "reference"> = {}): Promise<ImageInfo> {
    const { signal, onProgress, ...body } = options;
    const said = await this.#transfer("/images/pull", { reference, ...body }, { signal, onProgress });
    if (said.type !== "image") throw unexpected(said);
    return said.image;
  }

  /** The manifest's digest, as the registry knows it. */
  async push(
    image: string,
    reference: string,
    options: TransferOptions & Omit<PushBody, "reference"> = {},
  ): Promise<{ readonly digest: string }> {
    const { signal, onProgress, ...body } = options;
    const said = await this.#transfer(`${pathOf(image)}/push`, { reference, ...body }, { signal, onProgress });
    if (said.type !== "pushed") throw unexpected(said);
    return { digest: said.digest };
  }

  /** For the operator: removes what nobody needs. */
  async prune(
    options: Waiting & { readonly all?: boolean | undefined; readonly unusedForMs?: number | undefined } = {},
  ): Promise<PruneResult> {
    const { signal, ...json } = options;
    return this.#transport.json("POST", "/images/prune", { json, signal });
  }

  async #transfer(path: string, json: object, options: TransferOptions): Promise<Said> {
    const { signal } = options;
    const response = await this.#transport.send("POST", path, { json, signal });
    for await (const line of lines<TransferLine>(chunksOf(this.#transport, response, { signal }))) {
      if (line.type !== "progress") return line;
      const { type: _, ...progress } = line;
      options.onProgress?.(progress);
    }
    throw new HoldfastError("server_unreachable", "the server closed the connection before the transfer was done");
  }
}

function unexpected(said: Said): HoldfastError {
  return new HoldfastError("engine_fault", `the server ended a transfer with ${said.type}`, {
    hint: "Is it of another version than this client?",
  });
}

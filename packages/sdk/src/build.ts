/** Builds an image on the server: what it lacks of the files is sent, the log is followed, the image comes back. */
import {
  type BuildInfo,
  type BuildLine,
  type BuildLogLine,
  type ErrorLine,
  HoldfastError,
  type ImageInfo,
  type MissingBlobs,
  type RegistryAuth,
} from "@holdfast/protocol";
import { type BlobSource, type BuilderOptions, type Image, parseBuilderOptions } from "@holdfast/recipe";
import { isPassing, Reconnects } from "./backoff.js";
import { chunksOf } from "./chunks.js";
import type { Waiting } from "./command.js";
import { lines } from "./json-lines.js";
import { errorFromBody } from "./rebuild-error.js";
import type { Transport } from "./transport.js";

export interface BuildOptions extends Waiting {
  /** `name` or `name:tag`; several are fine. */
  readonly name?: string | readonly string[] | undefined;
  /** Over what the image itself says of its builder. */
  readonly builder?: BuilderOptions | undefined;
  /** Runs every step again from this one on (0: all). */
  readonly forceFrom?: number | undefined;
  /** Whom to be to the registries (`docker.io`, `registry.example.com`) that images are pulled from for it. Never stored. */
  readonly registryAuths?: Readonly<Record<string, RegistryAuth>> | undefined;
  /** Every line of the log, from the first. */
  readonly onLog?: ((line: BuildLogLine) => void) | undefined;
  /** Whenever a step begins or ends. */
  readonly onBuild?: ((build: BuildInfo) => void) | undefined;
}

type LogLine = Exclude<BuildLine, ErrorLine | { readonly type: "keepalive" }>;

/** So many are asked about at once. */
const DIGESTS_AT_ONCE = 5000;

export async function buildImage(transport: Transport, image: Image, options: BuildOptions = {}): Promise<ImageInfo> {
  const { signal } = options;
  const { recipe, blobs, builder } = await image.resolve();
  await sendMissing(transport, blobs, signal);
  const names = typeof options.name === "string" ? [options.name] : [...(options.name ?? [])];
  const json = {
    recipe,
    builder: { ...builder, ...parseBuilderOptions(options.builder ?? {}) },
    names,
    forceFrom: options.forceFrom,
    registryAuths: options.registryAuths,
  };
  const started: BuildInfo = await transport.json("POST", "/images/builds", { json, signal });
  let stopped: Promise<void> | undefined;
  const stop = (): void => {
    // What is told to the caller is that it was canceled, whether or not the server still hears of it.
    stopped ??= transport.done("DELETE", buildPath(started.id)).catch(() => {});
  };
  signal?.addEventListener("abort", stop, { once: true });
  try {
    if (signal?.aborted === true) stop();
    const ended = await follow(transport, started.id, options);
    if (ended.state !== "ready" || ended.imageId === null) throw failureOf(ended);
    return await transport.json("GET", `/images/${ended.imageId}`, { signal });
  } finally {
    signal?.removeEventListener("abort", stop);
    await stopped;
  }
}

const buildPath = (id: string): string => `/images/builds/${encodeURIComponent(id)}`;

function failureOf(build: BuildInfo): HoldfastError {
  if (build.state === "canceled") return new HoldfastError("canceled", `the build ${build.id} was canceled`);
  return (
    errorFromBody(build.error) ?? new HoldfastError("build_failed", `the build ${build.id} ended without an image`)
  );
}

async function follow(transport: Transport, id: string, options: BuildOptions): Promise<BuildInfo> {
  for await (const said of buildLines(transport, id, options)) {
    if (said.type === "log") {
      const { type: _, ...entry } = said;
      options.onLog?.(entry);
    } else {
      options.onBuild?.(said.build);
      if (said.type === "ended") return said.build;
    }
  }
  throw new HoldfastError("engine_fault", `the server forgot to say how the build ${id} ended`);
}

/**
 * Everything that a build says, from its first line to its end. A connection that breaks is made anew, from the line after
 * the last.
 */
export async function* buildLines(
  transport: Transport,
  id: string,
  { signal }: Waiting = {},
): AsyncGenerator<LogLine, void> {
  const reconnects = new Reconnects(transport.retry, signal);
  let from = 0;
  for (;;) {
    let failure = new HoldfastError("server_unreachable", "the build's log broke off");
    try {
      const response = await transport.send("GET", `${buildPath(id)}/log`, { query: { from }, signal });
      reconnects.connected();
      for await (const line of lines<BuildLine>(chunksOf(transport, response, { signal }))) {
        reconnects.succeeded();
        const said: LogLine = line;
        if (said.type === "log") from = said.seq + 1;
        yield said;
        if (said.type === "ended") return;
      }
    } catch (reason) {
      failure = transport.failure(reason, signal);
      if (!isPassing(failure)) throw failure;
    }
    await reconnects.wait(failure);
  }
}

async function sendMissing(
  transport: Transport,
  blobs: readonly BlobSource[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const byDigest = new Map(blobs.map((blob) => [blob.digest as string, blob]));
  const digests = [...byDigest.keys()];
  for (let index = 0; index < digests.length; index += DIGESTS_AT_ONCE) {
    const { missing }: MissingBlobs = await transport.json("POST", "/images/blobs/missing", {
      json: { digests: digests.slice(index, index + DIGESTS_AT_ONCE) },
      signal,
      repeatable: true,
    });
    for (const digest of missing) {
      const blob = byDigest.get(digest);
      if (blob === undefined) continue;
      await transport.done("PUT", `/images/blobs/${digest}`, { content: blob.open(), signal });
    }
  }
}

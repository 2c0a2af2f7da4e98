import { Readable } from "node:stream";
import type { LayerId } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import type { ImagesContext } from "../context.js";
import { DigestMeter } from "./digest.js";
import { CHUNK_BYTES } from "./file-chunks.js";
import { openPipe, readPipe } from "./pipe.js";
import { startTar, type TarChild } from "./tar-program.js";

export interface Packed {
  readonly diffId: Digest;
  readonly sizeBytes: number;
}

export interface PackedLayer {
  readonly stream: Readable;
  /** Of all that went through the stream; rejects if it did not all. */
  readonly result: Promise<Packed>;
}

export interface PackedChunks extends Omit<PackedLayer, "stream"> {
  /** A chunk is the reader's until it asks for the next: the same two buffers are used again and again. */
  readonly chunks: AsyncGenerator<Uint8Array>;
}

interface PackOptions {
  readonly signal?: AbortSignal | undefined;
}

/** A layer as an uncompressed tar with OCI's whiteouts: the same files always give the same bytes. */
export function packChunks(context: ImagesContext, id: LayerId, options: PackOptions = {}): PackedChunks {
  const meter = new DigestMeter();
  let resolve: (result: Packed) => void;
  let reject: (reason: unknown) => void;
  const result = new Promise<Packed>((onResult, onFailure) => {
    [resolve, reject] = [onResult, onFailure];
  });
  result.catch(() => undefined);
  async function* chunks(): AsyncGenerator<Uint8Array> {
    try {
      const pipe = await openPipe(context);
      let child: TarChild;
      try {
        child = startPack(context, id, pipe.writer.fd, options);
      } catch (error) {
        await pipe.reader.close();
        throw error;
      } finally {
        // The child has its own; with this one open the pipe would never come to its end.
        await pipe.writer.close();
      }
      const content = readPipe(pipe.reader);
      try {
        for await (const chunk of content) {
          meter.add(chunk);
          yield chunk;
        }
        // The end of the bytes is not the end of the story: a program that failed has written a part.
        await child.report;
      } finally {
        child.kill();
        await content.return(undefined);
        await child.report.catch(() => undefined);
      }
      resolve({ diffId: meter.digest(), sizeBytes: meter.sizeBytes });
    } catch (error) {
      reject(asPackFault(error));
      throw asPackFault(error);
    } finally {
      reject(new HoldfastError("canceled", `packing layer ${id} was stopped`));
    }
  }
  return { chunks: chunks(), result };
}

export function startPack(
  context: ImagesContext,
  id: LayerId,
  stdout: number,
  { signal, diesWithUs }: PackOptions & { readonly diesWithUs?: boolean },
): TarChild {
  const args = ["pack", "--from", context.engine.layers.path(id), "--deletions", "overlay"];
  return startTar(context, { args, stdout, what: `layer ${id}`, signal, diesWithUs });
}

/** The same for those who need a stream, whose chunks are their own to keep. */
export function packLayer(context: ImagesContext, id: LayerId, options: PackOptions = {}): PackedLayer {
  const { chunks, result } = packChunks(context, id, options);
  const stream = new Readable({
    highWaterMark: CHUNK_BYTES,
    read() {
      chunks.next().then(
        (step) => this.push(step.done === true ? null : Buffer.from(step.value)),
        (error: unknown) => this.destroy(error as Error),
      );
    },
    destroy(error, callback) {
      chunks.return(undefined).then(
        () => callback(error),
        (reason: unknown) => callback(error ?? (reason as Error)),
      );
    },
  });
  return { stream, result };
}

/** Exactly how long `packLayer`'s stream will be, without reading the files. */
export async function measureLayer(
  context: ImagesContext,
  id: LayerId,
  options: { readonly signal?: AbortSignal | undefined } = {},
): Promise<number> {
  const child = startTar(context, {
    args: ["measure", "--from", context.engine.layers.path(id), "--deletions", "overlay"],
    what: `layer ${id}`,
    signal: options.signal,
  });
  const report = await child.report.catch((error: unknown) => {
    throw asPackFault(error);
  });
  const size = report.bytes;
  if (typeof size !== "number") throw new HoldfastError("engine_fault", `measuring layer ${id} gave no size`);
  return size;
}

/** Our own layers are not somebody's invalid images. */
export function asPackFault(error: unknown): HoldfastError {
  const reason = HoldfastError.from(error);
  if (reason.code !== "image_invalid") return reason;
  return new HoldfastError("engine_fault", reason.message, { cause: error });
}

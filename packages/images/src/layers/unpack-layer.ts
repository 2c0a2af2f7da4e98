import { createLayerId } from "@holdfast/engine";
import { HoldfastError } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";
import type { ImagesContext } from "../context.js";
import { claimLayer } from "../store/claims.js";
import type { LayerRecord } from "../types.js";
import { assertDigest, DigestMeter } from "./digest.js";
import { openPipe, PipeWritable } from "./pipe.js";
import { pump } from "./pump.js";
import { startTar, type TarChild } from "./tar-program.js";

export interface UnpackLayerOptions {
  /** For a person: `imported`, `base: Debian 12`. */
  readonly from: string;
  readonly expectedDiffId?: Digest | undefined;
  /** Of the files unpacked; more than that is refused with `no_space`. */
  readonly maxBytes?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Whoever will let go of the claim on the layer when a record names it. Without one, a prune at once might take it. */
  readonly holder?: string | undefined;
  readonly onBytes?: ((bytes: number) => void) | undefined;
}

/** More files than any image has; each takes room even if it is empty. */
const MAX_ENTRIES = 5_000_000;

/** An uncompressed tar into a layer of its own. The layer is there whole and checked, or nothing is left of it. */
export async function unpackLayer(
  context: ImagesContext,
  tar: AsyncIterable<Uint8Array>,
  options: UnpackLayerOptions,
): Promise<LayerRecord> {
  const { engine, store } = context;
  const { signal, expectedDiffId } = options;
  signal?.throwIfAborted();
  const id = createLayerId();
  if (options.holder !== undefined) claimLayer(store.directory, options.holder, id);
  const draft = await engine.layers.draft(id);
  const meter = new DigestMeter();
  try {
    await feed(context, draft.directory, tar, meter, options);
    if (expectedDiffId !== undefined) assertDigest(meter.digest(), expectedDiffId, options.from);
    signal?.throwIfAborted();
    await draft.commit();
  } catch (error) {
    await draft.discard().catch((reason: unknown) => {
      context.log.warn(
        { left: "layer", layer: id, error: HoldfastError.from(reason).message },
        "what was unpacked of it is left",
      );
    });
    throw error;
  }
  try {
    const record: LayerRecord = {
      version: 1,
      id,
      createdAt: new Date().toISOString(),
      diffId: expectedDiffId ?? meter.digest(),
      sizeBytes: await engine.layers.sizeBytes(id),
      from: options.from,
    };
    store.putLayer(record);
    return record;
  } catch (error) {
    await engine.layers.remove(id);
    throw error;
  }
}

async function feed(
  context: ImagesContext,
  directory: string,
  tar: AsyncIterable<Uint8Array>,
  meter: DigestMeter,
  options: UnpackLayerOptions,
): Promise<void> {
  const { from, maxBytes, signal, onBytes } = options;
  const pipe = await openPipe(context);
  const input = new PipeWritable(pipe.writer);
  // Whoever writes hears of it; what comes after that is of no interest to anybody.
  input.on("error", () => undefined);
  let child: TarChild;
  try {
    child = startTar(context, {
      args: [
        "unpack",
        ...["--into", directory, "--deletions", "overlay", "--chroot", "--max-entries", String(MAX_ENTRIES)],
        // Some tools leave out the end of an archive; where a digest is promised, that says whether it is whole.
        ...(options.expectedDiffId === undefined ? [] : ["--lenient-end"]),
        ...(maxBytes === undefined ? [] : ["--max-bytes", String(maxBytes)]),
      ],
      stdin: pipe.reader.fd,
      what: from,
      signal,
    });
  } catch (error) {
    input.destroy();
    throw error;
  } finally {
    // The child has its own; without this one, writing fails as soon as the child is gone.
    await pipe.reader.close();
  }
  // A source that waits must not keep us from hearing that the child has failed.
  child.report.catch(() => input.destroy());
  try {
    await pump(tar, input, {
      signal,
      onChunk: (chunk) => {
        meter.add(chunk);
        onBytes?.(chunk.length);
      },
    });
  } catch (error) {
    if (isBrokenPipe(error)) await child.report;
    child.kill();
    await child.report.catch(() => undefined);
    throw signal?.aborted === true ? HoldfastError.from(signal.reason, "canceled") : error;
  } finally {
    input.destroy();
  }
  const { skippedDevices, skippedXattrs, opaque } = await child.report;
  // The kernel has no such mark at the top of a layer; taken as it is, what was deleted would be back.
  if (opaque === true) {
    throw new HoldfastError("image_invalid", `${from}: a layer deletes all that lies below it, which is not supported`);
  }
  if (skippedDevices || skippedXattrs) {
    context.log.info({ from, skippedDevices, skippedXattrs }, "a layer has devices or attributes that were left out");
  }
}

/** The program has ended; what it said of that is the cause. */
function isBrokenPipe(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code;
  return (
    code === "EPIPE" ||
    code === "ECONNRESET" ||
    code === "ERR_STREAM_DESTROYED" ||
    code === "ERR_STREAM_PREMATURE_CLOSE"
  );
}

import { type Duplex, PassThrough } from "node:stream";
import { createGunzip, createGzip } from "node:zlib";
import { HoldfastError } from "@holdfast/protocol";
import { programStream } from "./program-stream.js";
import { type PumpOptions, pump } from "./pump.js";

export const COMPRESSIONS = ["none", "gzip", "zstd"] as const;
export type Compression = (typeof COMPRESSIONS)[number];

/** How many bytes `sniffCompression` wants to see. */
export const SNIFF_BYTES = 6;
const CHUNK_BYTES = 128 * 1024;

const MAGIC: readonly (readonly [name: string, bytes: readonly number[]])[] = [
  ["gzip", [0x1f, 0x8b]],
  ["zstd", [0x28, 0xb5, 0x2f, 0xfd]],
  ["xz", [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00]],
  ["bzip2", [0x42, 0x5a, 0x68]],
];

/** What content says of itself, whatever it is called. Refuses the kinds that no registry and no current tool makes. */
export function sniffCompression(firstBytes: Uint8Array): Compression {
  const name = MAGIC.find(([, bytes]) => bytes.every((byte, index) => firstBytes[index] === byte))?.[0] ?? "none";
  if (isCompression(name)) return name;
  throw new HoldfastError("image_invalid", `it is compressed with ${name}, which is not supported`, {
    hint: "Unpack it, or compress it with gzip or zstd.",
    details: { compression: name },
  });
}

export function isCompression(value: unknown): value is Compression {
  return COMPRESSIONS.includes(value as Compression);
}

/** Write compressed bytes, read plain ones. Bad input is an error of the stream. */
export function decompress(kind: Compression): Duplex {
  if (kind === "gzip") return createGunzip({ chunkSize: CHUNK_BYTES });
  if (kind === "zstd") {
    return programStream("zstd", ["--decompress", "--stdout", "--quiet", "--no-progress"], {
      install: "apt-get install zstd",
      onFailure: (said) => new HoldfastError("image_invalid", `cannot decompress it: ${said}`),
    });
  }
  return new PassThrough();
}

/** Write plain bytes, read compressed ones: the same input gives the same output. */
export function compress(kind: Compression): Duplex {
  if (kind === "gzip") return createGzip({ chunkSize: CHUNK_BYTES });
  if (kind === "zstd") {
    return programStream("zstd", ["--stdout", "--quiet", "--no-progress", "-3", "--threads=2"], {
      install: "apt-get install zstd",
      onFailure: (said) => new HoldfastError("engine_fault", `zstd failed: ${said}`),
    });
  }
  return new PassThrough();
}

/** The same as a pull: reads of the source no faster than the reader reads, and stops it when the reader goes away. */
export function decompressed(
  source: AsyncIterable<Uint8Array>,
  kind: Compression,
  options: PumpOptions & { readonly what: string },
): AsyncIterable<Uint8Array> {
  return kind === "none" ? source : through(source, () => decompress(kind), options);
}

export function compressed(
  source: AsyncIterable<Uint8Array>,
  kind: Compression,
  options: PumpOptions & { readonly what: string },
): AsyncIterable<Uint8Array> {
  return kind === "none" ? source : through(source, () => compress(kind), options);
}

async function* through(
  source: AsyncIterable<Uint8Array>,
  open: () => Duplex,
  options: PumpOptions & { readonly what: string },
): AsyncGenerator<Uint8Array> {
  // Only when somebody reads: nobody would end what nobody has begun.
  const stream = open();
  // The first thing that went wrong is the cause; what follows from it is noise.
  let cause: unknown;
  const fail = (error: unknown): void => {
    cause ??= error;
    stream.destroy(error instanceof Error ? error : new Error(String(error)));
  };
  stream.on("error", fail);
  const pumping = pump(source, stream, options).catch(fail);
  try {
    for await (const chunk of stream as AsyncIterable<Uint8Array>) yield chunk;
  } catch (error) {
    throw compressionError(cause ?? error, options.what);
  } finally {
    stream.destroy();
    await pumping;
  }
}

function compressionError(error: unknown, what: string): unknown {
  if (error instanceof HoldfastError && error.code === "image_invalid") {
    return new HoldfastError("image_invalid", `${what}: ${error.message}`, { cause: error, hint: error.hint });
  }
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  if (typeof code === "string" && code.startsWith("Z_")) {
    return new HoldfastError("image_invalid", `${what}: cannot decompress it: ${(error as Error).message}`, {
      cause: error,
      hint: "It was cut off or changed on the way; fetch it again.",
    });
  }
  return error;
}

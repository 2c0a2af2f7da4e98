/**
 * A kernel pipe between this process and a child, read and written in big pieces by libuv's threads: what Node itself gives
 * to children are sockets, whose bytes come in 64 KiB at a time on the thread that has everything else to do.
 */
import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { Writable } from "node:stream";
import { promisify } from "node:util";
import { HoldfastError } from "@holdfast/protocol";
import type { ImagesContext } from "../context.js";
import { openScratch } from "../scratch/scratch.js";
import { CHUNK_BYTES, PIECE_BYTES } from "./file-chunks.js";

const run = promisify(execFile);

export interface Pipe {
  readonly reader: FileHandle;
  readonly writer: FileHandle;
}

/** Its name is gone when this returns; it lives for as long as its ends do. */
export async function openPipe(context: Pick<ImagesContext, "scratchDirectory">): Promise<Pipe> {
  const scratch = await openScratch(context, { what: "making a pipe" });
  const opened: FileHandle[] = [];
  const openEnd = async (flags: number): Promise<FileHandle> => {
    const file = await open(scratch.path("pipe"), flags);
    opened.push(file);
    return file;
  };
  try {
    await run("mkfifo", ["-m", "600", scratch.path("pipe")]);
    // Open both ways, it lets the two ends be opened without waiting for each other.
    const both = await openEnd(constants.O_RDWR);
    const reader = await openEnd(constants.O_RDONLY);
    const writer = await openEnd(constants.O_WRONLY);
    await both.close();
    return { reader, writer };
  } catch (error) {
    for (const file of opened) await file.close().catch(() => undefined);
    throw HoldfastError.from(error);
  } finally {
    await scratch.close();
  }
}

/** Everything that comes out of a pipe, in two buffers: a chunk is the reader's until it asks for the next. Closes it. */
export async function* readPipe(reader: FileHandle): AsyncGenerator<Uint8Array> {
  const buffers = [Buffer.allocUnsafeSlow(PIECE_BYTES), Buffer.allocUnsafeSlow(PIECE_BYTES)] as const;
  let turn: 0 | 1 = 0;
  const read = async (): Promise<Uint8Array> => {
    const buffer = buffers[turn];
    turn = turn === 0 ? 1 : 0;
    let filled = 0;
    while (filled < PIECE_BYTES) {
      const { bytesRead } = await reader.read(buffer, filled, PIECE_BYTES - filled, null);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return buffer.subarray(0, filled);
  };
  let next = read();
  try {
    for (;;) {
      const chunk = await next;
      if (chunk.length === 0) return;
      next = read();
      // If the reader goes away it is awaited below; until then nobody may take it for unhandled.
      next.catch(() => undefined);
      yield chunk;
    }
  } finally {
    // Whoever stops early has stopped the writer before, so that this comes to an end.
    await next.catch(() => undefined);
    await reader.close();
  }
}

/** A pipe's end as a stream. A chunk is the caller's again when its callback is called. */
export class PipeWritable extends Writable {
  readonly #writer: FileHandle;
  #writing: Promise<void> = Promise.resolve();

  constructor(writer: FileHandle) {
    super({ highWaterMark: CHUNK_BYTES });
    this.#writer = writer;
  }

  override _write(chunk: Uint8Array, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#writing = this.#writeAll(chunk).then(
      () => callback(),
      (error: unknown) => callback(error as Error),
    );
  }

  async #writeAll(chunk: Uint8Array): Promise<void> {
    for (let written = 0; written < chunk.length; ) {
      const { bytesWritten } = await this.#writer.write(chunk, written, chunk.length - written, null);
      written += bytesWritten;
    }
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    // Not under the feet of a thread that writes: whoever read from the pipe is gone, so it does not take long.
    this.#writing
      .then(() => this.#writer.close())
      .then(
        () => callback(error),
        (reason: unknown) => callback(error ?? (reason as Error)),
      );
  }
}

/** A filter program of the host as a stream: back-pressure both ways, and its failure is the stream's error. */
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { Duplex } from "node:stream";
import { HoldfastError } from "@holdfast/protocol";

const MAX_SAID_BYTES = 4096;

export interface ProgramStreamOptions {
  /** How to get it. */
  readonly install: string;
  readonly onFailure: (said: string) => Error;
}

class ProgramStream extends Duplex {
  readonly #child: ChildProcessWithoutNullStreams;
  #said = "";
  #ended = false;

  constructor(program: string, args: readonly string[], options: ProgramStreamOptions) {
    super({ allowHalfOpen: true });
    const child = spawn(program, args, {
      stdio: "pipe",
      env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
    });
    this.#child = child;
    child.stderr.setEncoding("utf8");
    child.stderr.on("data", (text: string) => {
      if (this.#said.length < MAX_SAID_BYTES) this.#said += text;
    });
    child.stdout.on("data", (chunk: Buffer) => {
      if (!this.push(chunk)) child.stdout.pause();
    });
    // A program that ends early closes its input; its exit status says why, so the broken pipe itself is not news.
    child.stdin.on("error", () => undefined);
    child.on("error", (error: NodeJS.ErrnoException) => {
      this.#ended = true;
      this.destroy(
        error.code === "ENOENT"
          ? new HoldfastError("host_unsupported", `${program} is not installed on this host`, {
              cause: error,
              hint: `Install it: ${options.install}`,
            })
          : error,
      );
    });
    child.on("close", (code, signal) => {
      this.#ended = true;
      if (code === 0) this.push(null);
      else this.destroy(options.onFailure(this.#said.trim() || (signal ?? `exit ${code}`)));
    });
  }

  override _write(chunk: Uint8Array, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#child.stdin.write(chunk, (error) => {
      // Whoever writes goes on; the error that matters comes with the exit status.
      if (error === null || error === undefined || !this.#child.stdin.writable) callback();
      else callback(error);
    });
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.#child.stdin.end(() => callback());
  }

  override _read(): void {
    this.#child.stdout.resume();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    if (!this.#ended) this.#child.kill("SIGKILL");
    this.#child.stdout.destroy();
    callback(error);
  }
}

export function programStream(program: string, args: readonly string[], options: ProgramStreamOptions): Duplex {
  return new ProgramStream(program, args, options);
}

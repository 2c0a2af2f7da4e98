/**
 * The command's output to our own, byte for byte, no faster than our reader takes it. Our reader may be a pager, a slow
 * network or `head -1`: the first two slow the command down, the third ends it.
 */
import { once } from "node:events";
import type { Writable } from "node:stream";
import type { OutputEvent } from "@holdfast/engine";
import { lostOutputError } from "../text/lost-output.js";

type StreamName = OutputEvent["stream"];

const NEWLINE = 0x0a;

export interface OutputTargets {
  readonly stdout: Writable;
  readonly stderr: Writable;
}

export class OutputPump {
  /** True if what has been written to stdout ends a line (or is nothing). */
  stdoutEndsLine = true;
  /** Settles when a target can take no more, with the reason; for ever pending as long as both can. */
  readonly broken: Promise<NodeJS.ErrnoException>;

  readonly #targets: OutputTargets;
  readonly #abort = new AbortController();
  #progress = 0;

  constructor(targets: OutputTargets) {
    this.#targets = targets;
    this.broken = new Promise((resolve) => {
      const onError = (error: NodeJS.ErrnoException): void => {
        this.#abort.abort();
        resolve(error);
      };
      // For good: an error that comes after the run must not become an exception either.
      targets.stdout.on("error", onError);
      targets.stderr.on("error", onError);
    });
  }

  get isBroken(): boolean {
    return this.#abort.signal.aborted;
  }

  /** Counts what our readers took; as long as it grows, they are there. */
  get progress(): number {
    return this.#progress;
  }

  /** Returns when all of it is written. What nobody is there to take is read all the same: the ending comes after it. */
  async run(output: AsyncIterable<OutputEvent>): Promise<void> {
    for await (const event of output) {
      if (event.kind === "data") await this.write(event.stream, event.bytes);
      else
        await this.write("stderr", Buffer.from(`holdfast: ${event.length} bytes of ${event.stream} are lost here\n`));
    }
    await this.flush();
  }

  async write(stream: StreamName, bytes: Buffer): Promise<void> {
    if (this.isBroken || bytes.length === 0) return;
    if (stream === "stdout") this.stdoutEndsLine = bytes.at(-1) === NEWLINE;
    const target = this.#targets[stream];
    if (!target.write(bytes)) await this.#drained(target);
    this.#progress += 1;
  }

  async flush(): Promise<void> {
    for (const target of [this.#targets.stdout, this.#targets.stderr]) {
      if (!this.isBroken && target.writableLength > 0) await this.#drained(target);
    }
    // A file is written at once, but that it could not be is only said a turn later.
    await new Promise((resolve) => setImmediate(resolve));
  }

  async #drained(target: Writable): Promise<void> {
    try {
      while (target.writableLength > 0 && !this.isBroken) {
        if (target.writableNeedDrain) await once(target, "drain", { signal: this.#abort.signal });
        else await new Promise<void>((resolve) => target.write("", () => resolve()));
      }
    } catch {
      // Broken: `broken` says how, and whoever writes next sees it.
    }
  }
}

export function rejectLostOutput(error: NodeJS.ErrnoException): void {
  const lost = lostOutputError(error);
  if (lost !== undefined) throw lost;
}

/** One command in a sandbox, running or ended. */
import type { CommandEnding, CommandInfo } from "@holdfast/protocol";
import { followOutput, type OutputItem, type OutputOffsets } from "./output.js";
import type { Content, Transport } from "./transport.js";

export interface Waiting {
  readonly signal?: AbortSignal | undefined;
}

/** A command's standard input. Writes arrive in the order in which they were made. */
export class CommandInput {
  readonly #transport: Transport;
  readonly #path: string;
  #queue: Promise<unknown> = Promise.resolve();

  /** @internal */
  constructor(transport: Transport, path: string) {
    this.#transport = transport;
    this.#path = `${path}/stdin`;
  }

  /**
   * Resolves when the command has been given all of it: a program that does not read holds its writer up. A stream is sent
   * in one request, as it comes.
   */
  write(content: Content, options: Waiting & { readonly close?: boolean | undefined } = {}): Promise<void> {
    const { close = false, signal } = options;
    return this.#next(() =>
      this.#transport.done("POST", this.#path, { content, signal, ...(close ? { query: { close: 1 } } : {}) }),
    );
  }

  /** The command reads the end of its input. */
  close(options: Waiting = {}): Promise<void> {
    return this.#next(() => this.#transport.done("POST", this.#path, { query: { close: 1 }, signal: options.signal }));
  }

  /** As a web stream, to pipe into. */
  writable(): WritableStream<string | Uint8Array> {
    return new WritableStream({ write: (chunk) => this.write(chunk), close: () => this.close() });
  }

  #next(work: () => Promise<void>): Promise<void> {
    const done = this.#queue.then(work);
    this.#queue = done.catch(() => {});
    return done;
  }
}

export class Command {
  /** Its number in its sandbox: with it you come back to it from anywhere. */
  readonly id: number;
  /** As seen inside. */
  readonly pid: number;
  /** Takes input if it was started with `stdin: "open"` or has a terminal. */
  readonly stdin: CommandInput;
  readonly #transport: Transport;
  readonly #path: string;
  #ending: CommandEnding | undefined;
  #ended: Promise<CommandEnding> | undefined;

  /** @internal */
  constructor(transport: Transport, sandboxPath: string, info: CommandInfo) {
    this.#transport = transport;
    this.#path = `${sandboxPath}/commands/${info.id}`;
    this.id = info.id;
    this.pid = info.pid;
    this.stdin = new CommandInput(transport, this.#path);
    this.#ending = info.ending ?? undefined;
  }

  /**
   * Its output from the given offsets, by default from the first byte that is kept, to its end. When the connection breaks
   * (a server that restarts) it comes back by itself where it was: no byte is lost or doubled. As many readers as you like;
   * one that is slow slows the command, unless it says `whenReaderIsSlow: "drop"`.
   */
  async *output(
    from: Partial<OutputOffsets> = {},
    options: Waiting & { readonly whenReaderIsSlow?: "block" | "drop" | undefined } = {},
  ): AsyncGenerator<OutputItem, CommandEnding> {
    const ending = yield* followOutput({
      transport: this.#transport,
      path: this.#path,
      from: { stdout: from.stdout ?? 0, stderr: from.stderr ?? 0 },
      signal: options.signal,
      whenReaderIsSlow: options.whenReaderIsSlow,
    });
    this.#ending = ending;
    return ending;
  }

  /** Waits until it has ended, and says how. The output is not read by it. */
  async wait(options: Waiting = {}): Promise<CommandEnding> {
    if (this.#ending !== undefined) return this.#ending;
    const waiting = followOutput({
      transport: this.#transport,
      path: this.#path,
      from: { stdout: 0, stderr: 0 },
      signal: options.signal,
      data: false,
    });
    for (;;) {
      const { done, value } = await waiting.next();
      if (done === true) {
        this.#ending = value;
        return value;
      }
    }
  }

  /** How it ended, once it has. Asking for it begins to wait. */
  get ended(): Promise<CommandEnding> {
    this.#ended ??= this.wait();
    return this.#ended;
  }

  /** What the server knows about it now. */
  async info(options: Waiting = {}): Promise<CommandInfo> {
    return this.#transport.json("GET", this.#path, { signal: options.signal });
  }

  /** `whole`: to everything it has started too. */
  async signal(
    signal: string | number,
    options: Waiting & { readonly whole?: boolean | undefined } = {},
  ): Promise<void> {
    await this.#transport.done("POST", `${this.#path}/signal`, {
      json: { signal, whole: options.whole },
      signal: options.signal,
    });
  }

  /** The size of its terminal. */
  async resize(size: { readonly columns: number; readonly rows: number }, options: Waiting = {}): Promise<void> {
    await this.#transport.done("POST", `${this.#path}/resize`, { json: size, signal: options.signal });
  }

  /** Ends it and all it started: SIGTERM, after the grace SIGKILL. */
  async cancel(options: Waiting & { readonly graceMs?: number | undefined } = {}): Promise<CommandEnding> {
    const ending: CommandEnding = await this.#transport.json("DELETE", this.#path, {
      query: { graceMs: options.graceMs },
      signal: options.signal,
      repeatable: true,
    });
    this.#ending = ending;
    return ending;
  }
}

/** Files inside a sandbox. */
import { type ErrorLine, type FileEvent, type FileInfo, HoldfastError, type WatchLine } from "@holdfast/protocol";
import { isPassing, Reconnects } from "./backoff.js";
import { bodyStream } from "./body-stream.js";
import { chunksOf } from "./chunks.js";
import type { Waiting } from "./command.js";
import { lines } from "./json-lines.js";
import type { Content, Transport } from "./transport.js";

export interface FileOptions extends Waiting {
  /** Whose home a relative path begins in, and who owns what is made. Default: the sandbox's user. */
  readonly user?: string | undefined;
}

export interface ReadOptions extends FileOptions {
  /** The first byte to read. Default 0. */
  readonly offset?: number | undefined;
  /** How many bytes at most. Default: to the end. */
  readonly length?: number | undefined;
}

export interface WriteOptions extends FileOptions {
  /** Permissions, such as 0o755. */
  readonly mode?: number | undefined;
  /** Make the directories above it. Default true. */
  readonly parents?: boolean | undefined;
}

type WatchedLine = Exclude<WatchLine, ErrorLine | { readonly type: "keepalive" }>;

export class Files {
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal */
  constructor(transport: Transport, sandboxPath: string) {
    this.#transport = transport;
    this.#path = `${sandboxPath}/files`;
  }

  /** As text by default; `as: "bytes"` for all of it at once, `as: "stream"` for files of any size. */
  read(path: string, options?: ReadOptions & { readonly as?: "text" | undefined }): Promise<string>;
  read(path: string, options: ReadOptions & { readonly as: "bytes" }): Promise<Uint8Array<ArrayBuffer>>;
  read(path: string, options: ReadOptions & { readonly as: "stream" }): Promise<ReadableStream<Uint8Array>>;
  async read(
    path: string,
    options: ReadOptions & { readonly as?: "text" | "bytes" | "stream" | undefined } = {},
  ): Promise<string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>> {
    const { as, signal, ...query } = options;
    const response = await this.#transport.send("GET", this.#path, { query: { path, ...query }, signal });
    if (as === "stream") return bodyStream(this.#transport, response, signal);
    try {
      const bytes = new Uint8Array(await response.arrayBuffer());
      return as === "bytes" ? bytes : new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
    } catch (reason) {
      throw this.#transport.failure(reason, signal);
    }
  }

  /**
   * Replaces the file, at once and as a whole: nobody ever sees half of it. A stream is sent as it comes, whatever its
   * size.
   */
  async write(path: string, content: Content, options: WriteOptions = {}): Promise<FileInfo> {
    const { signal, mode, ...query } = options;
    return this.#transport.json("PUT", this.#path, {
      query: { path, ...query, mode: mode === undefined ? undefined : mode.toString(8).padStart(4, "0") },
      content,
      signal,
      repeatable: true,
    });
  }

  async info(path: string, options: FileOptions = {}): Promise<FileInfo> {
    const { signal, ...query } = options;
    return this.#transport.json("GET", `${this.#path}/info`, { query: { path, ...query }, signal });
  }

  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.info(path, options);
      return true;
    } catch (error) {
      if (error instanceof HoldfastError && error.code === "file_not_found") return false;
      throw error;
    }
  }

  /** What is in a directory, one after the other. `depth` 2 also lists what is in its directories, and so on. */
  async *list(
    path: string,
    options: FileOptions & { readonly depth?: number | undefined } = {},
  ): AsyncGenerator<FileInfo> {
    const { signal, ...query } = options;
    const response = await this.#transport.send("GET", `${this.#path}/list`, { query: { path, ...query }, signal });
    yield* lines<FileInfo>(chunksOf(this.#transport, response, { signal, idleMs: null }));
  }

  /** Content to be with one that is there already, unless `parents` is false. */
  async makeDirectory(path: string, options: WriteOptions = {}): Promise<FileInfo> {
    const { signal, ...body } = options;
    return this.#transport.json("POST", `${this.#path}/directory`, { json: { path, ...body }, signal });
  }

  async move(from: string, to: string, options: FileOptions = {}): Promise<FileInfo> {
    const { signal, ...body } = options;
    return this.#transport.json("POST", `${this.#path}/move`, { json: { from, to, ...body }, signal });
  }

  /** Resolves to how many files and directories it was. A directory that is not empty needs `recursive`. */
  async remove(
    path: string,
    options: FileOptions & { readonly recursive?: boolean | undefined } = {},
  ): Promise<number> {
    const { signal, ...query } = options;
    const answer = await this.#transport.json<{ readonly removed: number }>("DELETE", this.#path, {
      query: { path, ...query },
      signal,
    });
    return answer.removed;
  }

  /**
   * Resolves when the watch stands: what happens from then on is told. When the connection breaks it comes back by itself
   * and says `overflow`: look again, something may have happened meanwhile.
   */
  async watch(
    path: string,
    options: FileOptions & { readonly recursive?: boolean | undefined } = {},
  ): Promise<AsyncGenerator<FileEvent>> {
    const { signal, ...query } = options;
    const open = () => this.#openWatch({ path, ...query }, signal);
    return this.#follow(await open(), open, signal);
  }

  async #openWatch(
    query: Readonly<Record<string, string | boolean | undefined>>,
    signal: AbortSignal | undefined,
  ): Promise<AsyncGenerator<WatchedLine>> {
    const response = await this.#transport.send("GET", `${this.#path}/watch`, { query, signal });
    const received = lines<WatchLine>(chunksOf(this.#transport, response, { signal }));
    const first = await received.next();
    if (first.done === true)
      throw new HoldfastError("server_unreachable", "the connection broke before the watch stood");
    return received;
  }

  async *#follow(
    first: AsyncGenerator<WatchedLine>,
    open: () => Promise<AsyncGenerator<WatchedLine>>,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<FileEvent> {
    const reconnects = new Reconnects(this.#transport.retry, signal);
    let received: AsyncGenerator<WatchedLine> | undefined = first;
    for (;;) {
      let failure = new HoldfastError("server_unreachable", "the server closed the connection");
      try {
        if (received === undefined) {
          received = await open();
          yield { kind: "overflow", name: "" };
        }
        reconnects.connected();
        for await (const line of received) {
          reconnects.succeeded();
          if (line.type === "event") yield { kind: line.kind, name: line.name };
        }
      } catch (reason) {
        failure = this.#transport.failure(reason, signal);
        if (!isPassing(failure)) throw failure;
      }
      received = undefined;
      await reconnects.wait(failure);
    }
  }
}

/** A command's output that survives its connection: what was received is known by offset, and the rest is asked for. */
import {
  type CommandEnding,
  type CommandInfo,
  type ErrorLine,
  HoldfastError,
  type OutputLine,
} from "@holdfast/protocol";
import { isPassing, Reconnects } from "./backoff.js";
import { bytesFromBase64 } from "./bytes.js";
import { chunksOf } from "./chunks.js";
import { lines } from "./json-lines.js";
import type { Transport } from "./transport.js";

export interface OutputOffsets {
  readonly stdout: number;
  readonly stderr: number;
}

/** A stretch of output. A `gap` stands where bytes are no longer kept. */
export type OutputItem =
  | {
      readonly type: "data";
      readonly stream: "stdout" | "stderr";
      readonly offset: number;
      readonly bytes: Uint8Array<ArrayBuffer>;
    }
  | { readonly type: "gap"; readonly stream: "stdout" | "stderr"; readonly offset: number; readonly length: number };

export type ReceivedLine = Exclude<OutputLine, ErrorLine | { readonly type: "keepalive" }>;

export interface OutputSource {
  readonly transport: Transport;
  /** The path of the command. */
  readonly path: string;
  readonly from: OutputOffsets;
  readonly signal?: AbortSignal | undefined;
  readonly whenReaderIsSlow?: "block" | "drop" | undefined;
  /** False: only how it ends. */
  readonly data?: boolean;
  /** A stream that is open already. */
  readonly first?: AsyncIterable<ReceivedLine>;
}

const STREAMS = ["stdout", "stderr"] as const;

/** Keeps the account of what has been received. Nothing is given twice, and what is missing is said. */
class Position {
  readonly #next: { stdout: number; stderr: number };

  constructor(from: OutputOffsets) {
    this.#next = { ...from };
  }

  get offsets(): OutputOffsets {
    return { ...this.#next };
  }

  *take(line: Extract<ReceivedLine, { type: "data" | "gap" }>): Generator<OutputItem> {
    const { stream, offset } = line;
    if (line.type === "gap") {
      yield* this.skipTo(stream, offset + line.length);
      return;
    }
    yield* this.skipTo(stream, offset);
    const all = bytesFromBase64(line.base64);
    const known = Math.min(all.length, this.#next[stream] - offset);
    const bytes = known === 0 ? all : all.subarray(known);
    if (bytes.length === 0) return;
    this.#next[stream] += bytes.length;
    yield { type: "data", stream, offset: offset + known, bytes };
  }

  *skipTo(stream: "stdout" | "stderr", end: number): Generator<OutputItem> {
    const offset = this.#next[stream];
    if (end <= offset) return;
    this.#next[stream] = end;
    yield { type: "gap", stream, offset, length: end - offset };
  }
}

async function open(source: OutputSource, from: OutputOffsets): Promise<AsyncIterable<ReceivedLine>> {
  const { transport, signal, whenReaderIsSlow, data = true } = source;
  const query = data ? { ...from, whenReaderIsSlow } : { data: 0 };
  const response = await transport.send("GET", `${source.path}/output`, { query, signal });
  return lines<OutputLine>(chunksOf(transport, response, { signal }));
}

/** How a command ended whose sandbox is no more. */
async function* rest(source: OutputSource, position: Position, reason: HoldfastError) {
  const { transport, path, signal } = source;
  const { ending } = await transport.json<CommandInfo>("GET", path, { signal });
  if (ending === null) throw reason;
  if (source.data !== false) {
    const totals = { stdout: ending.usage.stdoutBytes, stderr: ending.usage.stderrBytes };
    for (const stream of STREAMS) yield* position.skipTo(stream, totals[stream]);
  }
  return ending;
}

export async function* followOutput(source: OutputSource): AsyncGenerator<OutputItem, CommandEnding> {
  const { transport, signal } = source;
  const position = new Position(source.from);
  const reconnects = new Reconnects(transport.retry, signal);
  let received = source.first;
  for (;;) {
    let failure = new HoldfastError("server_unreachable", "the server closed the connection");
    try {
      received ??= await open(source, position.offsets);
      reconnects.connected();
      for await (const line of received) {
        reconnects.succeeded();
        if (line.type === "ended") return line.ending;
        if (line.type !== "started") yield* position.take(line);
      }
    } catch (reason) {
      failure = transport.failure(reason, signal);
      if (failure.code === "sandbox_ended") return yield* rest(source, position, failure);
      if (!isPassing(failure)) throw failure;
    }
    received = undefined;
    await reconnects.wait(failure);
  }
}

/** Runs a command to its end. What the program did is a value; nothing of it is thrown. */
import {
  type CommandEnding,
  type CommandLimits,
  HoldfastError,
  type OutputLine,
  type StartCommandBody,
} from "@holdfast/protocol";
import { chunksOf } from "./chunks.js";
import { Command } from "./command.js";
import { lines } from "./json-lines.js";
import { followOutput, type OutputItem, type ReceivedLine } from "./output.js";
import { OutputTail } from "./output-tail.js";
import type { Content, Transport } from "./transport.js";

const DEFAULT_MAX_OUTPUT_BYTES = 1024 * 1024;

/** A text is for the shell; a list is a program and its arguments, as they are. */
export type CommandLine = string | readonly string[];

export interface CommandOptions {
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly cwd?: string | undefined;
  /** Name, uid or uid:gid. Default: the sandbox's user. */
  readonly user?: string | undefined;
  /** After so long it is ended, with everything it started. Short for `limits.wallMs`. */
  readonly timeoutMs?: number | undefined;
  readonly limits?: CommandLimits | undefined;
  /** Between SIGTERM and SIGKILL at the deadline. */
  readonly graceMs?: number | undefined;
  /** A name of your own for it. */
  readonly tag?: string | undefined;
}

export interface StartOptions extends CommandOptions {
  /** `open` lets you write to it. Default: closed. */
  readonly stdin?: "open" | "closed" | undefined;
  /** Gives it a terminal of this size. */
  readonly pty?: { readonly columns: number; readonly rows: number } | undefined;
  /** `block` (default): a slow reader slows the command. `drop`: it loses bytes, and is told which. */
  readonly whenReaderIsSlow?: "block" | "drop" | undefined;
  /** Cancels the start, not the command. */
  readonly signal?: AbortSignal | undefined;
}

export interface RunOptions extends CommandOptions {
  /** What it reads; then its input ends. */
  readonly stdin?: Content | undefined;
  /** Called with text as it comes. If it returns a promise, the output waits for it, and so does the command. */
  readonly onStdout?: ((text: string) => void | Promise<void>) | undefined;
  readonly onStderr?: ((text: string) => void | Promise<void>) | undefined;
  /** How much of stdout, and of stderr, the result holds: their last bytes. Default 1 MiB. */
  readonly maxOutputBytes?: number | undefined;
  /** Ends the command and rejects with `canceled`. */
  readonly signal?: AbortSignal | undefined;
}

export interface RunResult extends CommandEnding {
  readonly stdout: string;
  readonly stderr: string;
  /** Whether something is missing from the texts above. */
  readonly truncated: { readonly stdout: boolean; readonly stderr: boolean };
}

export function commandBody(line: CommandLine, options: CommandOptions & StartOptions): StartCommandBody {
  const { env, cwd, user, timeoutMs, limits, graceMs, tag, stdin, pty, whenReaderIsSlow } = options;
  const wallMs = timeoutMs ?? limits?.wallMs;
  // JSON leaves out what is undefined.
  return {
    argv: typeof line === "string" ? ["/bin/bash", "-l", "-c", line] : line,
    env,
    cwd,
    user,
    stdin,
    pty,
    graceMs,
    tag,
    whenReaderIsSlow,
    limits: limits === undefined && wallMs === undefined ? undefined : { ...limits, wallMs },
  } as StartCommandBody;
}

/** One stream's part of the result, and its text as it comes. */
class Collected {
  readonly tail: OutputTail;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  readonly #onText: ((text: string) => void | Promise<void>) | undefined;

  constructor(maxBytes: number, onText: ((text: string) => void | Promise<void>) | undefined) {
    this.tail = new OutputTail(maxBytes);
    this.#onText = onText;
  }

  async add(bytes: Uint8Array): Promise<void> {
    this.tail.add(bytes);
    if (this.#onText !== undefined) await this.#tell(this.#decoder.decode(bytes, { stream: true }));
  }

  async gap(): Promise<void> {
    this.tail.gap();
    await this.finish();
  }

  async finish(): Promise<void> {
    if (this.#onText !== undefined) await this.#tell(this.#decoder.decode());
  }

  async #tell(text: string): Promise<void> {
    if (text !== "") await this.#onText?.(text);
  }
}

/** Starts it, in the same round trip that brings its output. */
async function begin(
  transport: Transport,
  sandboxPath: string,
  body: StartCommandBody,
  signal: AbortSignal | undefined,
): Promise<{ readonly command: Command; readonly received: AsyncGenerator<ReceivedLine> }> {
  const response = await transport.send("POST", `${sandboxPath}/run`, { json: body, signal });
  const received = lines<OutputLine>(chunksOf(transport, response, { signal }));
  const first = await received.next();
  if (first.done === true || first.value.type !== "started") {
    throw new HoldfastError("server_unreachable", "the connection broke before the command was known to have started", {
      hint: "It may be running: look at the sandbox's commands before you start it again.",
    });
  }
  return { command: new Command(transport, sandboxPath, first.value.command), received };
}

/** A command that was started by its reader, which has it from the first byte. */
export interface StreamedCommand {
  readonly command: Command;
  /** Its output to its end; comes back by itself when the connection breaks. What it returns is how it ended. */
  readonly output: AsyncGenerator<OutputItem, CommandEnding>;
}

export async function streamCommand(
  transport: Transport,
  sandboxPath: string,
  line: CommandLine,
  options: StartOptions,
): Promise<StreamedCommand> {
  const { signal, whenReaderIsSlow } = options;
  const { command, received } = await begin(transport, sandboxPath, commandBody(line, options), signal);
  const path = `${sandboxPath}/commands/${command.id}`;
  const from = { stdout: 0, stderr: 0 };
  return { command, output: followOutput({ transport, path, from, signal, whenReaderIsSlow, first: received }) };
}

export async function runCommand(
  transport: Transport,
  sandboxPath: string,
  line: CommandLine,
  options: RunOptions,
): Promise<RunResult> {
  const { stdin, signal, maxOutputBytes = DEFAULT_MAX_OUTPUT_BYTES, ...commandOptions } = options;
  const { command, output } = await streamCommand(transport, sandboxPath, line, {
    ...commandOptions,
    stdin: stdin === undefined ? "closed" : "open",
    signal,
  });
  const leaving = new AbortController();
  // What a program does not read is nobody's error: it may end before its input does.
  if (stdin !== undefined) command.stdin.write(stdin, { close: true, signal: leaving.signal }).catch(() => {});
  const collected = {
    stdout: new Collected(maxOutputBytes, options.onStdout),
    stderr: new Collected(maxOutputBytes, options.onStderr),
  };
  try {
    for (;;) {
      const { done, value } = await output.next();
      if (done === true) return await result(value, collected);
      if (value.type === "data") await collected[value.stream].add(value.bytes);
      else await collected[value.stream].gap();
    }
  } catch (error) {
    // Left by the caller, by way of the signal or of an error of its own: it has no other hold on the command.
    if (signal?.aborted || !(error instanceof HoldfastError)) await command.cancel().catch(() => {});
    throw error;
  } finally {
    leaving.abort();
    void output.return(undefined as never).catch(() => {});
  }
}

async function result(
  ending: CommandEnding,
  collected: { readonly stdout: Collected; readonly stderr: Collected },
): Promise<RunResult> {
  const { stdout, stderr } = collected;
  await stdout.finish();
  await stderr.finish();
  return {
    ...ending,
    stdout: stdout.tail.text(),
    stderr: stderr.tail.text(),
    truncated: { stdout: stdout.tail.truncated, stderr: stderr.tail.truncated },
  };
}

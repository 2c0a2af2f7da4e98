/** Runs one command of a build to its end, its output as lines. */
import type { Command, CommandSpec, Sandbox } from "@holdfast/engine";
import { type CommandEnding, HoldfastError } from "@holdfast/protocol";
import { pump } from "../layers/pump.js";
import { OutputLines } from "./output-lines.js";

/** Who keeps its output open without being it: something in the background. It has said enough. */
const LAST_WORDS_MS = 500;
const MAX_WALL_MS = 2 ** 40;

export interface RunOptions {
  readonly onLine: (stream: "stdout" | "stderr", text: string) => void;
  readonly signal: AbortSignal;
  /** By `Date.now()`. */
  readonly endsAtMs: number;
  /** What it reads; nothing if absent. */
  readonly input?: AsyncIterable<Uint8Array> | undefined;
  /** Takes stdout as it is; then only stderr comes as lines. */
  readonly onStdout?: ((bytes: Uint8Array) => Promise<void>) | undefined;
}

export async function runCommand(sandbox: Sandbox, spec: CommandSpec, options: RunOptions): Promise<CommandEnding> {
  const { signal, input } = options;
  signal.throwIfAborted();
  const wallMs = Math.min(MAX_WALL_MS, Math.max(1, options.endsAtMs - Date.now()));
  const command = await sandbox.start(
    {
      ...spec,
      stdin: input === undefined ? "closed" : "open",
      whenReaderIsSlow: "block",
      limits: { ...spec.limits, wallMs },
    },
    { signal },
  );
  const reading = readOutput(command, options);
  const writing = input === undefined ? undefined : write(command, input, signal);
  const ending = await command.ended;
  const inputError = await writing;
  await finishReading(command, reading);
  // A command that has failed has closed its input: that is no news.
  const isFine = ending.cause.kind === "exited" && ending.cause.code === 0;
  if (inputError !== undefined && (isFine || inputError instanceof HoldfastError)) throw inputError;
  return ending;
}

async function readOutput(command: Command, { onLine, onStdout }: RunOptions): Promise<void> {
  const lines = {
    stdout: new OutputLines((text) => onLine("stdout", text)),
    stderr: new OutputLines((text) => onLine("stderr", text)),
  };
  for await (const event of command.output()) {
    if (event.kind === "gap") lines[event.stream].gap(event.length);
    else if (event.stream === "stdout" && onStdout !== undefined) await onStdout(event.bytes);
    else lines[event.stream].push(event.bytes);
  }
  lines.stdout.end();
  lines.stderr.end();
}

/** What went wrong with it, for whoever finds that it matters. */
async function write(command: Command, input: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<unknown> {
  if (command.stdin === undefined) return new Error("the command has no stdin");
  command.stdin.on("error", () => {
    // The pump has its own ear for it; a late one is nobody's.
  });
  const ended = new AbortController();
  void command.ended.then(() => ended.abort(new Error("the command has ended")));
  try {
    await pump(input, command.stdin, { signal: AbortSignal.any([signal, ended.signal]) });
    return undefined;
  } catch (error) {
    // It would wait for more that never comes.
    void command.cancel("its input failed");
    return error;
  }
}

async function finishReading(command: Command, reading: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const patience = new Promise<"over">((resolve) => {
    timer = setTimeout(() => resolve("over"), LAST_WORDS_MS);
  });
  try {
    if ((await Promise.race([reading, patience])) === "over") {
      command.detach();
      await reading.catch(() => undefined);
    }
  } finally {
    clearTimeout(timer);
  }
}

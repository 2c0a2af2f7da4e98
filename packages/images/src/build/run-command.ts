/** Runs one command of a build to its end, its output as lines. */
import { setTimeout as sleep } from "node:timers/promises";
import { type Command, type CommandSpec, type Sandbox, withLinkedSignal } from "@holdfast/engine";
import { type CommandEnding, HoldfastError, type Usage } from "@holdfast/protocol";
import { pump } from "../layers/pump.js";
import { OutputLines } from "./output-lines.js";

/** Who keeps its output open without being it: something in the background. It has said enough. */
const LAST_WORDS_MS = 500;
const LOOK_MS = 20;
const MAX_WALL_MS = 2 ** 40;

export interface RunOptions {
  readonly onLine: (stream: "stdout" | "stderr", text: string) => void;
  readonly signal: AbortSignal;
  /** By `Date.now()`. */
  readonly endsAtMs: number;
  /** What it reads; nothing if absent. */
  readonly input?: AsyncIterable<Uint8Array> | undefined;
  /** Takes stdout as it is, to its end; then only stderr comes as lines. */
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
  const output = new Output(command, options);
  const writing = input === undefined ? undefined : write(command, input, signal);
  const ending = await command.ended;
  const inputError = await writing;
  await output.finish(ending.usage);
  // A command that has failed has closed its input: that is no news.
  const isFine = ending.cause.kind === "exited" && ending.cause.code === 0;
  if (inputError !== undefined && (isFine || inputError instanceof HoldfastError)) throw inputError;
  return ending;
}

class Output {
  readonly #command: Command;
  readonly #options: RunOptions;
  readonly #done: Promise<"done">;
  readonly #readBytes = { stdout: 0, stderr: 0 };
  #failure: { readonly reason: unknown } | undefined;
  #isDetached = false;

  constructor(command: Command, options: RunOptions) {
    this.#command = command;
    this.#options = options;
    this.#done = this.#read().then(
      () => "done",
      (reason: unknown) => {
        if (!this.#isDetached) this.#failure = { reason };
        // It would wait for its reader for ever.
        void command.cancel("its output could not be kept", { graceMs: 0 });
        return "done";
      },
    );
  }

  /** After the command's end: what it has written until then is read in any case. */
  async finish({ stdoutBytes, stderrBytes }: Usage): Promise<void> {
    if (this.#options.onStdout === undefined) {
      const isBehind = (): boolean => this.#readBytes.stdout < stdoutBytes || this.#readBytes.stderr < stderrBytes;
      let isDone = false;
      while (!isDone && isBehind()) isDone = await this.#endsWithin(LOOK_MS);
      if (!isDone && !(await this.#endsWithin(LAST_WORDS_MS))) {
        this.#isDetached = true;
        this.#command.detach();
      }
    }
    await this.#done;
    if (this.#failure !== undefined) throw this.#failure.reason;
  }

  async #endsWithin(ms: number): Promise<boolean> {
    const over = new AbortController();
    const timer = sleep(ms, "over", { signal: over.signal }).catch(() => "over");
    try {
      return (await Promise.race([this.#done, timer])) === "done";
    } finally {
      over.abort();
    }
  }

  async #read(): Promise<void> {
    const { onLine, onStdout } = this.#options;
    const lines = {
      stdout: new OutputLines((text) => onLine("stdout", text)),
      stderr: new OutputLines((text) => onLine("stderr", text)),
    };
    for await (const event of this.#command.output()) {
      const length = event.kind === "gap" ? event.length : event.bytes.length;
      const isContent = event.stream === "stdout" && onStdout !== undefined;
      if (event.kind === "gap" && isContent) throw lost(event.length);
      if (event.kind === "gap") lines[event.stream].gap(event.length);
      else if (isContent) await onStdout(event.bytes);
      else lines[event.stream].push(event.bytes);
      this.#readBytes[event.stream] = event.offset + length;
    }
    lines.stdout.end();
    lines.stderr.end();
  }
}

function lost(lengthBytes: number): HoldfastError {
  return new HoldfastError("engine_fault", `${lengthBytes} bytes of what is to be copied are not kept`);
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
    const { stdin } = command;
    await withLinkedSignal([signal, ended.signal], (either) => pump(input, stdin, { signal: either }));
    return undefined;
  } catch (error) {
    // It would wait for more that never comes.
    void command.cancel("its input failed");
    return error;
  }
}

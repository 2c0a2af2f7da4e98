/** Starts what an image is there to run, and waits until it says, in the image's own terms, that it is ready. */
import type { CommandSpec, OutputEvent, Sandbox } from "@holdfast/engine";
import { type CommandEnding, HoldfastError } from "@holdfast/protocol";
import type { ReadyWhen, StartCommand } from "@holdfast/recipe";
import { untilAborted } from "./until-aborted.js";

const DEFAULT_READY_MS = 600_000;
/** Ports are asked often at first: most servers are up within a second. */
const FIRST_LOOK_MS = 20;
const SLOWEST_LOOK_MS = 2000;
/** One try of a ready command; a hanging one is tried again. */
const READY_TRY_MS = 30_000;
const TAIL_LINES = 20;
const LISTENER_LOOK_MS = 100;

/** What of a command is needed here; the server hands in commands that it keeps account of. */
export interface StartedCommand {
  readonly ended: Promise<CommandEnding>;
  /** Its output, if somebody is to read it here. */
  output?(): AsyncIterable<OutputEvent>;
}

export interface StartImageOptions {
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** How the start command is started; plainly in the sandbox if absent. */
  readonly launch?: ((spec: CommandSpec) => Promise<StartedCommand>) | undefined;
  /**
   * A wait of so many seconds is a guess, made when the image was built. With this it is over as soon as something listens on
   * a port; with `never`, which is for an image in which nothing did, there is none.
   */
  readonly untilListening?: boolean | "never" | undefined;
  /** Each line that it writes until it is ready. */
  readonly onLine?: ((text: string, stream: "stdout" | "stderr") => void) | undefined;
}

export interface StartedImage {
  readonly command: StartedCommand;
  readonly readyMs: number;
  /** After a wait of so many seconds: whether something listens on a port. */
  readonly listens?: boolean | undefined;
}

export async function startImage(
  sandbox: Sandbox,
  start: StartCommand,
  options: StartImageOptions = {},
): Promise<StartedImage> {
  const began = performance.now();
  const timeoutMs = options.timeoutMs ?? DEFAULT_READY_MS;
  const stop = new AbortController();
  const signal = options.signal === undefined ? stop.signal : AbortSignal.any([options.signal, stop.signal]);
  const shell = await findShell(sandbox);
  const spec: CommandSpec = {
    argv: [...shell, start.command],
    stdin: "closed",
    whenReaderIsSlow: "drop",
    tag: "start",
  };
  const command = await (options.launch ?? ((given) => sandbox.start(given)))(spec);
  const tail: string[] = [];
  const reading = readLines(
    command,
    (text, stream) => {
      tail.push(text);
      if (tail.length > TAIL_LINES) tail.shift();
      options.onLine?.(text, stream);
    },
    signal,
  );
  const timer = setTimeout(() => stop.abort(notReady(start, timeoutMs, tail)), timeoutMs);
  // One that ends well may have gone into the background; one that fails will never be ready.
  void command.ended.then((ending) => {
    if (ending.cause.kind !== "exited" || ending.cause.code !== 0) stop.abort(failedToStart(start, ending, tail));
  });
  void sandbox.ended.then((ending) =>
    stop.abort(
      new HoldfastError("sandbox_ended", `the sandbox ended while its start command came up: ${ending.message}`),
    ),
  );
  try {
    const ready = start.readyWhen ?? { kind: "seconds", seconds: 0 };
    const { untilListening = false } = options;
    if (ready.kind !== "seconds" || untilListening === false) await waitUntilReady(sandbox, shell, ready, signal);
    else if (untilListening === true) await untilAnyPort(sandbox, ready.seconds * 1000, signal);
    const readyMs = Math.round(performance.now() - began);
    const isGuess = start.readyWhen?.kind === "seconds" && untilListening === false;
    return { command, readyMs, listens: isGuess ? await untilAborted(hasListener(sandbox), signal) : undefined };
  } finally {
    clearTimeout(timer);
    stop.abort();
    await reading;
  }
}

/** As a login shell, like any command of the E2B API; images without bash have `sh`. */
async function findShell(sandbox: Sandbox): Promise<string[]> {
  try {
    await sandbox.files.stat("/bin/bash", { user: "root" });
    return ["/bin/bash", "-l", "-c"];
  } catch {
    return ["/bin/sh", "-c"];
  }
}

async function waitUntilReady(
  sandbox: Sandbox,
  shell: readonly string[],
  ready: ReadyWhen,
  signal: AbortSignal,
): Promise<void> {
  if (ready.kind === "seconds") {
    await pause(ready.seconds * 1000, signal);
    return;
  }
  const look =
    ready.kind === "port"
      ? () => isListening(sandbox, ready.port)
      : () => succeeds(sandbox, [...shell, ready.command], signal);
  for (
    let waitMs = FIRST_LOOK_MS;
    !(await untilAborted(look(), signal));
    waitMs = Math.min(waitMs * 2, SLOWEST_LOOK_MS)
  ) {
    await pause(waitMs, signal);
  }
}

async function untilAnyPort(sandbox: Sandbox, mostMs: number, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + mostMs;
  for (let leftMs = mostMs; leftMs > 0; leftMs = deadline - performance.now()) {
    if (await untilAborted(hasListener(sandbox), signal)) return;
    await pause(Math.min(leftMs, LISTENER_LOOK_MS), signal);
  }
}

/** By the kernel's own table, in which 0A is a socket that listens; the guest's own door is at 127.18.0.1. */
async function hasListener(sandbox: Sandbox): Promise<boolean | undefined> {
  let known = false;
  for (const path of ["/proc/net/tcp", "/proc/net/tcp6"]) {
    try {
      const { content } = await sandbox.files.read(path, { user: "0" });
      let text = "";
      for await (const chunk of content) text += String(chunk);
      if (/^\s*\d+: (?!0100127F:)[0-9A-F]+:[0-9A-F]{4} [0-9A-F:]+ 0A /m.test(text)) return true;
      known = true;
    } catch {
      // Without the table the seconds decide.
    }
  }
  return known ? false : undefined;
}

async function isListening(sandbox: Sandbox, port: number): Promise<boolean> {
  try {
    const socket = await sandbox.dial({ port });
    socket.on("error", () => {});
    socket.destroy();
    return true;
  } catch {
    return false;
  }
}

async function succeeds(sandbox: Sandbox, argv: readonly string[], signal: AbortSignal): Promise<boolean> {
  const command = await sandbox.start(
    { argv, stdin: "closed", whenReaderIsSlow: "drop", limits: { wallMs: READY_TRY_MS } },
    { signal },
  );
  command.detach();
  const { cause } = await command.ended;
  return cause.kind === "exited" && cause.code === 0;
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const waited = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  return untilAborted(waited, signal).finally(() => clearTimeout(timer));
}

async function readLines(
  command: StartedCommand,
  onLine: (text: string, stream: "stdout" | "stderr") => void,
  signal: AbortSignal,
): Promise<void> {
  if (command.output === undefined) return;
  const rest = { stdout: "", stderr: "" };
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  const pump = async (): Promise<void> => {
    for await (const event of command.output?.() ?? []) {
      if (signal.aborted) return;
      if (event.kind === "gap") continue;
      const lines = (rest[event.stream] + decoders[event.stream].decode(event.bytes, { stream: true })).split("\n");
      rest[event.stream] = (lines.pop() ?? "").slice(-16_384);
      for (const line of lines) onLine(line, event.stream);
    }
    for (const stream of ["stdout", "stderr"] as const) if (rest[stream] !== "") onLine(rest[stream], stream);
  };
  await untilAborted(pump(), signal).catch(() => {});
}

function notReady(start: StartCommand, timeoutMs: number, tail: readonly string[]): HoldfastError {
  const { readyWhen } = start;
  const what =
    readyWhen?.kind === "port"
      ? `nothing listens on port ${readyWhen.port}`
      : readyWhen?.kind === "command"
        ? `its ready command does not succeed: ${readyWhen.command}`
        : "it is not ready";
  return new HoldfastError("build_failed", `the start command is not ready after ${timeoutMs / 1000} s: ${what}`, {
    hint: tail.length === 0 ? "It has written nothing." : `Its last words:\n${tail.join("\n")}`,
    details: { cause: { kind: "timed_out", limitMs: timeoutMs }, tail: [...tail] },
  });
}

function failedToStart(start: StartCommand, ending: CommandEnding, tail: readonly string[]): HoldfastError {
  return new HoldfastError(
    "build_failed",
    `the start command (${start.command}) ended before it was ready: ${ending.message}`,
    {
      hint: tail.length === 0 ? "It has written nothing." : `Its last words:\n${tail.join("\n")}`,
      details: { cause: ending.cause, peakBytes: ending.usage.memoryPeakBytes, tail: [...tail] },
    },
  );
}

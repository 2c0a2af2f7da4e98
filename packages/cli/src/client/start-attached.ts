/**
 * Starts a command and reads it from its first byte, in one request. Between a start and a later reader a command that
 * writes fast would lose what is more than is kept for it.
 */
import {
  type CommandEnding,
  type ErrorCode,
  errorSpecs,
  HoldfastError,
  type OutputLine,
  type StartCommandBody,
} from "@holdfast/protocol";
import type { Command, OutputItem, Sandbox } from "@holdfast/sdk";
import type { ServerClient } from "./server-client.js";

export interface AttachedCommand {
  readonly command: Command;
  readonly output: AsyncGenerator<OutputItem, CommandEnding>;
}

/** Longer than any line that a server of ours sends. */
const MAX_LINE_CHARACTERS = 16 * 1024 * 1024;

export async function startAttached(
  server: ServerClient,
  sandbox: Sandbox,
  body: StartCommandBody,
  signal: AbortSignal,
): Promise<AttachedCommand> {
  const response = await server.post(`/v1/sandboxes/${sandbox.id}/run`, body, signal);
  if (!response.ok) throw errorFrom(response.status, await response.text());
  const lines = linesOf(response);
  const first = await lines.next();
  if (first.done === true || first.value.type !== "started") {
    throw new HoldfastError("server_unreachable", "the connection broke before the command was known to have started", {
      hint: "It may be running: `holdfast logs --list` shows the sandbox's commands.",
    });
  }
  const command = await sandbox.command(first.value.command.id);
  return { command, output: readOn(lines, command, signal) };
}

function errorFrom(status: number, text: string): HoldfastError {
  try {
    const { code, message, hint, details } = JSON.parse(text) as ReturnType<HoldfastError["toJSON"]>;
    if (Object.hasOwn(errorSpecs, code)) return new HoldfastError(code satisfies ErrorCode, message, { hint, details });
  } catch {
    // Not one of ours: a proxy's, say.
  }
  return new HoldfastError("engine_fault", `the server answered ${status}: ${text.slice(0, 200)}`);
}

async function* linesOf(response: Response): AsyncGenerator<OutputLine> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of response.body ?? []) {
    const lines = (rest + decoder.decode(chunk as Uint8Array, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > MAX_LINE_CHARACTERS) throw new HoldfastError("engine_fault", "the server sent an endless line");
    for (const line of lines) if (line !== "") yield JSON.parse(line) as OutputLine;
  }
}

/** When the connection breaks (a server that restarts), the rest is asked for by its offset. */
async function* readOn(
  lines: AsyncGenerator<OutputLine>,
  command: Command,
  signal: AbortSignal,
): AsyncGenerator<OutputItem, CommandEnding> {
  const next = { stdout: 0, stderr: 0 };
  try {
    for await (const line of lines) {
      if (line.type === "ended") return line.ending;
      if (line.type === "data") {
        const bytes = new Uint8Array(Buffer.from(line.base64, "base64"));
        next[line.stream] = line.offset + bytes.length;
        yield { type: "data", stream: line.stream, offset: line.offset, bytes };
      } else if (line.type === "gap") {
        next[line.stream] = line.offset + line.length;
        yield line;
      }
    }
  } catch (reason) {
    if (signal.aborted) throw reason;
  }
  return yield* command.output(next, { whenReaderIsSlow: "block", signal });
}

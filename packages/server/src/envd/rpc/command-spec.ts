/** What a Start asks for, as the engine takes it. */
import { Code, ConnectError } from "@connectrpc/connect";
import type { CommandSpec } from "@holdfast/engine";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import type { PTY, StartRequest } from "../gen/process.js";
import { checkPath } from "../paths.js";
import type { Call } from "./call.js";

const DEFAULT_COLUMNS = 80;
const DEFAULT_ROWS = 24;
const LARGEST_TERMINAL_SIDE = 65_535;
const LONGEST_TAG_BYTES = 1024;
/** All of a command travels to the guest in one message. */
const MOST_COMMAND_BYTES = 240 * 1024;
const FIELD_BYTES = 6;

function terminalSide(field: string, value: number, otherwise: number): number {
  if (value > LARGEST_TERMINAL_SIDE) {
    throw invalidArgument(field, value, `a whole number from 1 to ${LARGEST_TERMINAL_SIDE}`);
  }
  return value === 0 ? otherwise : value;
}

/** A side that is not given, which on the wire is 0, is that of an ordinary terminal. */
export function terminalSize(pty: PTY): { columns: number; rows: number } {
  return {
    columns: terminalSide("pty.size.cols", pty.size?.cols ?? 0, DEFAULT_COLUMNS),
    rows: terminalSide("pty.size.rows", pty.size?.rows ?? 0, DEFAULT_ROWS),
  };
}

function checkText(field: string, text: string): string {
  if (text.includes("\0")) throw invalidArgument(field, text.slice(0, 100), "a text without NUL");
  return text;
}

function checkTag(tag: string): string {
  if (tag === "" || Buffer.byteLength(tag) > LONGEST_TAG_BYTES) {
    throw invalidArgument("tag", `${tag.slice(0, 100)}`, `a text of 1 to ${LONGEST_TAG_BYTES} bytes`);
  }
  return checkText("tag", tag);
}

function checkSize(argv: readonly string[], env: Readonly<Record<string, string>>): void {
  let bytes = 0;
  for (const text of argv) bytes += Buffer.byteLength(text) + FIELD_BYTES;
  for (const [name, value] of Object.entries(env))
    bytes += Buffer.byteLength(name) + Buffer.byteLength(value) + FIELD_BYTES;
  if (bytes <= MOST_COMMAND_BYTES) return;
  throw new HoldfastError(
    "invalid_argument",
    `process: the command, its arguments and its environment take ${bytes} bytes, and may take ${MOST_COMMAND_BYTES}`,
    { hint: "Write what is long to a file and let the command read it.", details: { field: "process" } },
  );
}

/** Absolute: what is relative starts at the user's home, which only the sandbox knows. */
async function resolveCwd(call: Call, cwd: string | undefined): Promise<string | undefined> {
  if (cwd === undefined || cwd === "") return undefined;
  checkPath("process.cwd", cwd);
  if (cwd.startsWith("/")) return cwd;
  try {
    const entry = await call.live.sandbox.files.stat(cwd, call.asUser);
    return entry.path;
  } catch (error) {
    const reason = HoldfastError.from(error);
    if (reason.code !== "file_not_found") throw reason;
    throw new HoldfastError("invalid_argument", `cwd '${cwd}' does not exist`, { details: { field: "process.cwd" } });
  }
}

export async function commandSpecFrom(request: StartRequest, call: Call): Promise<CommandSpec> {
  const { timeoutMs } = call;
  if (timeoutMs === 0) throw new ConnectError("the time given to the command is 0 ms", Code.DeadlineExceeded);
  const config = request.process;
  if (config === undefined || config.cmd === "") {
    throw invalidArgument("process.cmd", config?.cmd ?? "nothing", "a program to run");
  }
  const argv = [config.cmd, ...config.args].map((text, index) =>
    checkText(index === 0 ? "process.cmd" : `process.args[${index - 1}]`, text),
  );
  checkSize(argv, { ...call.live.row.env, ...config.envs });
  const { user } = call;
  return {
    argv,
    env: config.envs,
    cwd: await resolveCwd(call, config.cwd),
    user,
    // Clients from before the field expect to be able to write.
    stdin: request.stdin === false ? "closed" : "open",
    pty: request.pty === undefined ? undefined : terminalSize(request.pty),
    limits: { wallMs: timeoutMs },
    graceMs: 0,
    whenReaderIsSlow: "block",
    tag: request.tag === undefined ? undefined : checkTag(request.tag),
  };
}

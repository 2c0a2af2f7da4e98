/** What stands behind the sandbox: perhaps more options, then the program and what is the program's own. */
import { HoldfastError } from "@holdfast/protocol";
import { Command, CommanderError } from "commander";
import type { ExecFlags } from "./exec-plan.js";

export interface ExecWords {
  readonly argv: readonly string[];
  /** Those before the sandbox and those behind it. */
  readonly flags: ExecFlags;
}

export function parseExecWords(
  words: readonly string[],
  before: ExecFlags,
  addOptions: (command: Command) => Command,
): ExecWords {
  const command = addOptions(new Command("exec"))
    .argument("<command>")
    .argument("[arguments...]")
    .helpOption(false)
    .passThroughOptions()
    .exitOverride()
    .configureOutput({ writeErr: () => {} });
  try {
    command.parse([...words], { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    throw new HoldfastError("invalid_argument", `exec: ${error.message.replace(/^error: /, "")}`, {
      hint: "Options come before the program, and -- may stand between them: holdfast exec SANDBOX -it -- bash",
      cause: error,
    });
  }
  const behind = command.opts<ExecFlags>();
  const env = [...(before.env ?? []), ...(behind.env ?? [])];
  return { argv: command.args, flags: { ...before, ...behind, env } };
}

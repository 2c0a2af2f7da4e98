import type { Command } from "commander";
import type { KillFlags } from "../client/kill.js";
import { addServerOptions } from "./server-options.js";

export function addKillCommand(program: Command, setExitCode: (code: number) => void): void {
  const command = program
    .command("kill")
    .showHelpAfterError("  Try `holdfast kill --help`.")
    .summary("end sandboxes")
    .description("Ends sandboxes, everything in them and their files. Exits with 1 if one of them could not be ended.")
    .argument("[sandboxes...]", "their ids, or the beginnings of them")
    .option("--all", "all that the key (or the operator) can see, paused ones included");
  addServerOptions(command).action(async (sandboxes: string[], flags: KillFlags) => {
    const { kill } = await import("../client/kill.js");
    setExitCode(await kill(sandboxes, flags));
  });
}

import type { Command } from "commander";
import type { LogsFlags } from "../client/logs.js";
import { addServerOptions } from "./server-options.js";

export function addLogsCommand(program: Command): void {
  const command = program
    .command("logs")
    .showHelpAfterError("  Try `holdfast logs --help`.")
    .summary("show the output of a command in a sandbox")
    .description(
      "Shows the output of a command as far as it is kept: its stdout on ours, its stderr on ours. What the sandbox itself went through is in `holdfast events`.",
    )
    .argument("<sandbox>", "its id, or the beginning of it")
    .argument("[number]", "of the command; the newest if left out")
    .option("-f, --follow", "go on until the command has ended")
    .option("-l, --list", "list the sandbox's commands instead: number, start, how it ended")
    .option("--json", "with --list: as a JSON array");
  addServerOptions(command).action(async (sandbox: string, number: string | undefined, flags: LogsFlags) => {
    const { logs } = await import("../client/logs.js");
    await logs(sandbox, number, flags);
  });
}

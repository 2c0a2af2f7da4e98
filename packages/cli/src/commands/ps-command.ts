import type { Command } from "commander";
import type { PsFlags } from "../client/ps.js";
import { addServerOptions } from "./server-options.js";

export function addPsCommand(program: Command): void {
  const command = program
    .command("ps")
    .showHelpAfterError("  Try `holdfast ps --help`.")
    .summary("list the server's sandboxes")
    .description("Lists the sandboxes that run or are paused, the newest first.")
    .option("-a, --all", "also those that have ended, with how they ended")
    .option("-q, --quiet", "print ids only")
    .option("--json", "print them as a JSON array");
  addServerOptions(command).action(async (flags: PsFlags) => {
    const { ps } = await import("../client/ps.js");
    await ps(flags);
  });
}

import type { Command } from "commander";
import type { HostFlags } from "../client/host.js";
import { addServerOptions } from "./server-options.js";

export function addHostCommand(program: Command): void {
  const command = program
    .command("host")
    .showHelpAfterError("  Try `holdfast host --help`.")
    .summary("show what the server's machine has, and what is promised of it")
    .description("Shows memory, CPUs, processes and disk of the server's machine, and what sandboxes hold of them.")
    .option("--json", "print it as JSON");
  addServerOptions(command).action(async (flags: HostFlags) => {
    const { host } = await import("../client/host.js");
    await host(flags);
  });
}

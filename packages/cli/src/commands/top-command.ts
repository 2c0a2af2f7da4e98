import type { Command } from "commander";
import type { TopFlags } from "../client/top.js";
import { addServerOptions } from "./server-options.js";

export function addTopCommand(program: Command): void {
  const command = program
    .command("top")
    .showHelpAfterError("  Try `holdfast top --help`.")
    .summary("watch what sandboxes use")
    .description("Shows what each sandbox uses of what it may, the busiest first, every second until q or Ctrl-C.")
    .option("--once", "look once (for a second, to know the CPU time) and end")
    .option("--json", "print each look as one line of JSON");
  addServerOptions(command).action(async (flags: TopFlags) => {
    const { top } = await import("../client/top.js");
    await top(flags);
  });
}

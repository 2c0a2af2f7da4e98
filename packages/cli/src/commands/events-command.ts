import type { Command } from "commander";
import type { EventsFlags } from "../client/events.js";
import { addServerOptions } from "./server-options.js";

export function addEventsCommand(program: Command): void {
  const command = program
    .command("events")
    .showHelpAfterError("  Try `holdfast events --help`.")
    .summary("show what happened to sandboxes, and why")
    .description(
      "Shows what happened, one event a line: number, time, sandbox, what, why. All are kept as long as the sandbox.",
    )
    .argument("[sandbox]", "only of this one: its id, or the beginning of it")
    .option("-f, --follow", "go on as they happen, until Ctrl-C")
    .option("--after <number>", "only those after this one, to go on where you stopped")
    .option("--json", "print each as one line of JSON");
  addServerOptions(command).action(async (sandbox: string | undefined, flags: EventsFlags) => {
    const { events } = await import("../client/events.js");
    await events(sandbox, flags);
  });
}

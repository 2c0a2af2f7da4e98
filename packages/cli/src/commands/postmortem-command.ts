import type { Command } from "commander";
import type { PostmortemFlags } from "../client/postmortem.js";
import { addServerOptions } from "./server-options.js";

export function addPostmortemCommand(program: Command): void {
  const command = program
    .command("postmortem")
    .showHelpAfterError("  Try `holdfast postmortem --help`.")
    .summary("show how a sandbox ended, with the evidence")
    .description(
      "Shows how a sandbox ended: cause, numbers, the last output of its commands, its processes when the end began. Kept for a day.",
    )
    .argument("<sandbox>", "its id, or the beginning of it")
    .option("--json", "print it as JSON");
  addServerOptions(command).action(async (sandbox: string, flags: PostmortemFlags) => {
    const { postmortem } = await import("../client/postmortem.js");
    await postmortem(sandbox, flags);
  });
}

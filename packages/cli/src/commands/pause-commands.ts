import type { Command } from "commander";
import type { PauseFlags, ResumeFlags } from "../client/pause.js";
import { describe } from "./common-options.js";
import { addServerOptions } from "./server-options.js";

export function addPauseCommand(program: Command): void {
  const command = program
    .command("pause")
    .showHelpAfterError("  Try `holdfast pause --help`.")
    .summary("halt a sandbox; it can be resumed")
    .description(
      "Halts a sandbox: its processes stand still, its files and memory are kept, its time does not run out.",
    )
    .argument("<sandbox>", "its id, or the beginning of it")
    .option("--files-only", "keep only the files: its processes end, their memory is free, resuming boots it again")
    .option("--json", "print all about it as JSON");
  addServerOptions(command).action(async (sandbox: string, flags: PauseFlags) => {
    const { pause } = await import("../client/pause.js");
    await pause(sandbox, flags);
  });
}

export function addResumeCommand(program: Command): void {
  const command = program
    .command("resume")
    .showHelpAfterError("  Try `holdfast resume --help`.")
    .summary("let a paused sandbox go on")
    .description("Lets a paused sandbox go on where it was, or boots it if only its files were kept.")
    .argument("<sandbox>", "its id, or the beginning of it")
    .addOption(
      describe("--timeout <time>", "how long it lives from now: 30s, 10m, 2h", "as long as it was given before"),
    )
    .option("--files-only", "boot it again although its memory was kept")
    .option("--json", "print all about it as JSON");
  addServerOptions(command).action(async (sandbox: string, flags: ResumeFlags) => {
    const { resume } = await import("../client/pause.js");
    await resume(sandbox, flags);
  });
}

import type { Command } from "commander";
import type { TourFlags } from "../tour/tour.js";
import { poolOption, stateDirOption } from "./common-options.js";

export function addTourCommand(program: Command, setExitCode: (code: number) => void): void {
  program
    .command("tour")
    .showHelpAfterError("  Try `holdfast tour --help`.")
    .summary("run five hostile programs and show how each one ends")
    .description(
      "Runs five hostile programs, each in a sandbox of its own, and shows the cause of each one's end, what is left of it (nothing) and what the host noticed (nothing). Exits with 1 if one of them ends otherwise than it should.",
    )
    .addOption(stateDirOption())
    .addOption(poolOption())
    .action(async (flags: TourFlags) => {
      const { tour } = await import("../tour/tour.js");
      setExitCode(await tour(flags));
    });
}

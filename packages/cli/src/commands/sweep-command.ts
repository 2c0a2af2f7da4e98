import type { Command } from "commander";
import type { SweepFlags } from "../sweep.js";
import { poolOption, stateDirOption } from "./common-options.js";

export function addSweepCommand(program: Command): void {
  program
    .command("sweep")
    .showHelpAfterError("  Try `holdfast sweep --help`.")
    .summary("end and remove what dead processes of holdfast left")
    .description(
      "Ends and removes sandboxes whose process died without taking them away, and names them. Sandboxes of living processes are left alone. `holdfast run` does the same each time it starts.",
    )
    .addOption(stateDirOption())
    .addOption(poolOption())
    .action(async (flags: SweepFlags) => {
      const { sweep } = await import("../sweep.js");
      await sweep(flags);
    });
}

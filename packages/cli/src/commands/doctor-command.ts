import type { Command } from "commander";
import type { DoctorFlags } from "../doctor/doctor.js";
import { poolOption, stateDirOption } from "./common-options.js";

export function addDoctorCommand(program: Command, setExitCode: (code: number) => void): void {
  program
    .command("doctor")
    .showHelpAfterError("  Try `holdfast doctor --help`.")
    .summary("show what this host can enforce, by what, and how to get the rest")
    .description(
      "Inspects this host: what bounds and isolates a sandbox here, by which part of the system, and the remedy for what is missing. Ends with a real sandbox. Exits with 1 if the default engine cannot hold its promises here.",
    )
    .option("--json", "print { ok, rows } as JSON")
    .addOption(stateDirOption())
    .addOption(poolOption())
    .action(async (flags: DoctorFlags) => {
      const { doctor } = await import("../doctor/doctor.js");
      setExitCode(await doctor(flags));
    });
}

/** The command line as a tree. What each command does is imported only when it is called: `run` must start fast. */
import { Command } from "commander";
import { addCompletionCommand } from "./commands/completion-command.js";
import { addDoctorCommand } from "./commands/doctor-command.js";
import { addRunCommand } from "./commands/run-command.js";
import { addSweepCommand } from "./commands/sweep-command.js";
import { addTourCommand } from "./commands/tour-command.js";
import { coloursFor } from "./text/colours.js";

/** `setExitCode` is told what the chosen command ended with. */
export function createProgram(version: string, setExitCode: (code: number) => void): Command {
  const program = new Command("holdfast");
  const { bold } = coloursFor(process.stdout);
  program
    .description(
      "Runs untrusted programs in sandboxes that hold: bounded before they start, ended with a cause, nothing left.",
    )
    .version(`holdfast ${version}`, "-V, --version", "print the version")
    .helpOption("-h, --help", "show help")
    .helpCommand("help [command]", "show help for a command")
    .configureHelp({ styleTitle: bold, helpWidth: Math.min(process.stdout.columns ?? 100, 110) })
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, "holdfast: ")) })
    .showHelpAfterError("  Try `holdfast help`.")
    // Options after the command's name are the command's, those after a program's name are the program's.
    .enablePositionalOptions()
    .exitOverride()
    .addHelpText(
      "after",
      `
Try:
  holdfast tour                                      watch five hostile programs end, each with its cause
  holdfast run -- echo hello                         run something
  holdfast run --memory 64m -- tail /dev/zero        run something that wants too much
  holdfast doctor                                    see what this host can enforce, and by what

Environment:
  HOLDFAST_STATE_DIR   where sandboxes, their disks and images are kept (default: /var/lib/holdfast)
  HOLDFAST_POOL        btrfs or dir, see holdfast run --help (default: btrfs)
  HOLDFAST_DEBUG       set to 1 to see stack traces
  NO_COLOR             set to anything to have no colours`,
    );
  addRunCommand(program, setExitCode);
  addDoctorCommand(program, setExitCode);
  addTourCommand(program, setExitCode);
  addSweepCommand(program);
  addCompletionCommand(program);
  return program;
}

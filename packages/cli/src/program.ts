/** The command line as a tree. What each command does is imported only when it is called: `run` must start fast. */
import { Command } from "commander";
import { addBuildCommand } from "./commands/build-command.js";
import { addCompletionCommand } from "./commands/completion-command.js";
import { addCpCommand } from "./commands/cp-command.js";
import { addCreateCommand } from "./commands/create-command.js";
import { addDoctorCommand } from "./commands/doctor-command.js";
import { addEventsCommand } from "./commands/events-command.js";
import { addExecCommand } from "./commands/exec-command.js";
import { addHostCommand } from "./commands/host-command.js";
import { addImageCommand } from "./commands/image-command.js";
import { addKeyCommand } from "./commands/key-command.js";
import { addKillCommand } from "./commands/kill-command.js";
import { addLogsCommand } from "./commands/logs-command.js";
import { addPauseCommand, addResumeCommand } from "./commands/pause-commands.js";
import { addPostmortemCommand } from "./commands/postmortem-command.js";
import { addPsCommand } from "./commands/ps-command.js";
import { addRunCommand } from "./commands/run-command.js";
import { addServeCommand } from "./commands/serve-command.js";
import { addForkCommand, addSnapshotCommand } from "./commands/snapshot-commands.js";
import { addSweepCommand } from "./commands/sweep-command.js";
import { addTopCommand } from "./commands/top-command.js";
import { addTourCommand } from "./commands/tour-command.js";
import { coloursFor } from "./text/colours.js";

const EXAMPLES = `
Try:
  holdfast tour                                      watch five hostile programs end, each with its cause
  holdfast run -- echo hello                         run something, without a server
  holdfast run --memory 64m -- tail /dev/zero        run something that wants too much
  holdfast build -t app .                            build an image from a Dockerfile or a module
  holdfast run --image app                           run it
  holdfast serve                                     serve E2B's API on this machine
  box=$(holdfast create --timeout 1h)                make a sandbox on that server
  holdfast exec $box -it -- bash                     look around in it
  holdfast cp data.csv $box:/home/user/              bring it something
  holdfast doctor                                    see what this host can enforce, and by what

Environment:
  HOLDFAST_STATE_DIR   where sandboxes, their disks and images are kept (default: /var/lib/holdfast)
  HOLDFAST_SCRATCH_DIR where temporary files of builds and transfers go (default: in the state directory)
  HOLDFAST_POOL        btrfs or dir, see holdfast run --help (default: btrfs)
  HOLDFAST_URL         the server that ps, exec, cp and the like speak to (default: this machine's, as root)
  HOLDFAST_API_KEY     the key to show it
  HOLDFAST_DEBUG       set to 1 to see stack traces
  NO_COLOR             set to anything to have no colours`;

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
    .configureHelp({ styleTitle: bold, helpWidth: Math.min(process.stdout.columns ?? 100, 110) })
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, "holdfast: ")) })
    .showHelpAfterError("  Try `holdfast help`.")
    // Options after the command's name are the command's, those after a program's name are the program's.
    .enablePositionalOptions()
    .exitOverride()
    .addHelpText("after", EXAMPLES);
  program.commandsGroup("Without a server:");
  addRunCommand(program, setExitCode);
  addDoctorCommand(program, setExitCode);
  addTourCommand(program, setExitCode);
  addSweepCommand(program);
  program.commandsGroup("Images, with and without a server:");
  addBuildCommand(program, setExitCode);
  addImageCommand(program, setExitCode);
  program.commandsGroup("The server:");
  addServeCommand(program, setExitCode);
  addKeyCommand(program);
  program.commandsGroup("Sandboxes of a server:");
  addCreateCommand(program);
  addPsCommand(program);
  addExecCommand(program, setExitCode);
  addLogsCommand(program);
  addCpCommand(program, setExitCode);
  addPauseCommand(program);
  addResumeCommand(program);
  addSnapshotCommand(program);
  addForkCommand(program);
  addKillCommand(program, setExitCode);
  addTopCommand(program);
  addEventsCommand(program);
  addPostmortemCommand(program);
  addHostCommand(program);
  program.commandsGroup("Other:");
  addCompletionCommand(program);
  program.helpCommand("help [command]", "show help for a command");
  return program;
}

import { type Command, Option } from "commander";
import type { ExecFlags } from "../client/exec-plan.js";
import { collect, describe } from "./common-options.js";
import { addServerOptions } from "./server-options.js";

const EXAMPLES = `
Examples:
  holdfast exec iqo2 -- python3 -c 'print(6 * 7)'
  holdfast exec iqo2 -it -- bash
  tar -c . | holdfast exec iqo2 -i -- tar -x -C /home/user
  holdfast exec iqo2 --detach -- ./serve.sh; holdfast logs iqo2 --follow

Exit codes are those of holdfast run: the command's own, 128 + n if signal n ended it, 124 timed out, 137 killed for memory,
125 holdfast failed, 126 cannot be executed, 127 not found. Ctrl-C goes to the command; a second one ends it.`;

/** Parsed twice: options may stand before the sandbox and behind it, and those behind the program are the program's. */
export function addExecOptions(command: Command): Command {
  return command
    .option("-i, --interactive", "pass our stdin to the command; without it the command's stdin is /dev/null")
    .option("-t, --tty", "give the command a terminal: stdout and stderr become one, and the size follows ours")
    .addOption(
      describe(
        "-e, --env <name[=value]>",
        "set a variable; a name alone takes the value it has here. May be repeated",
        "none",
      ).argParser(collect),
    )
    .addOption(describe("-w, --cwd <path>", "directory inside to start in", "the user's home"))
    .addOption(describe("-u, --user <name|uid[:gid]>", "who runs it inside", "the sandbox's user"))
    .addOption(describe("-m, --memory <size>", "memory of its own, within the sandbox's", "the sandbox's"))
    .addOption(describe("--pids <number>", "processes of its own, within the sandbox's", "the sandbox's"))
    .addOption(describe("--timeout <time>", "how long it may run: 30s, 500ms, 5m", "no limit"))
    .option("-d, --detach", "print the command's number and leave it running; `holdfast logs` shows its output")
    .addOption(new Option("--json", "when the output is done, print the result as one line of JSON on stdout"));
}

export function addExecCommand(program: Command, setExitCode: (code: number) => void): void {
  const command = program
    .command("exec")
    .showHelpAfterError("  Try `holdfast exec --help`, or `holdfast exec SANDBOX -- echo hello`.")
    .summary("run a command in a sandbox of the server")
    .description("Runs a command in a sandbox of the server. A paused sandbox that may be woken is resumed first.")
    .usage("[options] <sandbox> [options] [--] <command> [arguments...]")
    .argument("<sandbox>", "its id, or the beginning of it")
    .argument("<command>", "the program to run")
    .argument("[arguments...]", "its arguments; options after the command are the command's")
    .passThroughOptions()
    .addHelpText("after", EXAMPLES);
  const addOptions = (to: Command): Command => addServerOptions(addExecOptions(to));
  addOptions(command).action(async (sandbox: string, first: string, rest: string[], before: ExecFlags) => {
    const { exec } = await import("../client/exec.js");
    const { parseExecWords } = await import("../client/exec-words.js");
    const { argv, flags } = parseExecWords([first, ...rest], before, addOptions);
    setExitCode(await exec(sandbox, argv, flags));
  });
}

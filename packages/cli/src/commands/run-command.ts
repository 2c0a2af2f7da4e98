import { DEFAULT_SANDBOX_LIMITS, sizeFlag } from "@holdfast/protocol";
import { type Command, Option } from "commander";
import { DEFAULT_GRACE_MS, type RunFlags } from "../run/plan.js";
import { collect, describe, poolOption, stateDirOption } from "./common-options.js";

const { memoryBytes, pids, cpuMillis, diskBytes } = DEFAULT_SANDBOX_LIMITS;

const limitOptions = (): Option[] => [
  describe(
    "-m, --memory <size>",
    "memory of everything it runs, /dev/shm included. 128m..1g: starts with the first and grows to the second while there is room, instead of a kill",
    sizeFlag(memoryBytes),
  ),
  describe("--pids <number>", "processes and threads at once, two of ours included", String(pids)),
  describe("--cpus <number>", "CPU time for each second, in CPUs: 1.5, 0.25", String(cpuMillis / 1000)),
  describe("--disk <size>", "everything it writes, /tmp included", sizeFlag(diskBytes)),
  describe("--timeout <time>", "how long it may run: 30s, 500ms, 5m", "no limit"),
  describe("--wait <time>", "how long it may wait for room on the host; 0s fails at once", "10m"),
  describe(
    "--grace <time>",
    "between SIGTERM and SIGKILL, at the timeout and after a signal to us",
    `${DEFAULT_GRACE_MS / 1000}s`,
  ),
];

const placeOptions = (): Option[] => [
  describe(
    "--image <host|name|dir>",
    "what it starts from. host: this machine's programs, read-only, with an /etc of its own. An image by name, digest or id: memory, user, directory and variables are the image's unless flags say otherwise. A path: the directory of a root file system",
    "host",
  ),
  new Option("--strict", "refuse what would differ from what was asked for, such as --memory below the image's floor"),
  new Option("--no-start", "do not start the image's start command before the command"),
  describe(
    "--mount <src:dst[:ro]>",
    "show a file or directory of the host inside; writable unless :ro; owners keep their numbers. May be repeated",
    "none",
  ).argParser(collect),
  describe(
    "-e, --env <name[=value]>",
    "set a variable; a name alone takes the value it has here. May be repeated. Nothing else of your environment goes in",
    "none",
  ).argParser(collect),
  describe("-w, --workdir <dir>", "directory inside to start in", "the user's home"),
  describe("-u, --user <name|uid[:gid]>", "who runs it inside; root inside is nobody outside", "user"),
  describe("--hostname <name>", "the host's name inside", "sandbox"),
];

const streamOptions = (): Option[] => [
  new Option(
    "-i, --interactive",
    "pass our stdin to the command. Without it the command's stdin is /dev/null, also when ours is a pipe or a file",
  ),
  new Option("-t, --tty", "give the command a terminal: stdout and stderr become one, and the size follows ours"),
  new Option("--json", "when the output is done, print the result as one line of JSON on stdout"),
  new Option("--json-file <file>", "write the result to a file instead"),
];

const EXAMPLES = `
Examples:
  holdfast run -- python3 -c 'print(6 * 7)'
  holdfast run --memory 256m --pids 64 --timeout 30s -- ./build.sh
  holdfast run --mount .:/work --workdir /work -- make test
  echo 'select 1' | holdfast run -i -- cat
  holdfast run -it -- bash
  holdfast run --json-file result.json -- pytest; jq .cause.kind result.json
  holdfast run --image app:1 --memory 512m -- ./test.sh
  holdfast run --image app:1                 what the image is there to run

Exit codes:
  the command's own, or 128 + n if signal n ended it
  124 timed out         137 killed for memory     141 our reader went away (… | head -1)
  125 holdfast failed   126 cannot be executed    127 not found

How it ended, if not by a plain exit, is said on stderr. Signals to holdfast go to all of the command; a second SIGINT or
SIGTERM, or no end within the grace, ends the sandbox. There is no network inside but loopback.

Images are those of this machine; \`holdfast image ls\` lists them. Without a command an image's start command is run, else its
entrypoint and cmd. With one, the start command is started first and waited for until it is ready. The image \`base\` is built on
first use.`;

export function addRunCommand(program: Command, setExitCode: (code: number) => void): void {
  const command = program
    .command("run")
    .summary("run a command in a sandbox of its own")
    .description("Runs a command in a sandbox of its own, which is gone when the command has ended. Needs no server.")
    .usage("[options] [--] [command] [arguments...]")
    .argument("[command]", "the program to run; an image may say what to run without it")
    .argument("[arguments...]", "its arguments; options after the command are the command's")
    .passThroughOptions()
    .showHelpAfterError("  Try `holdfast run --help`, or `holdfast run -- echo hello`.")
    .addHelpText("after", EXAMPLES);
  for (const option of limitOptions()) command.addOption(option.helpGroup("Limits:"));
  for (const option of placeOptions()) command.addOption(option.helpGroup("What is inside:"));
  for (const option of streamOptions()) command.addOption(option.helpGroup("Input and output:"));
  command.addOption(stateDirOption()).addOption(poolOption());
  command.action(async (program: string | undefined, args: string[], flags: RunFlags) => {
    const { run } = await import("../run/run.js");
    setExitCode(await run(program === undefined ? [] : [program, ...args], flags));
  });
}

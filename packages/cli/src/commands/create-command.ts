import { type Command, Option } from "commander";
import type { CreateFlags } from "../client/create.js";
import { collect, describe } from "./common-options.js";
import { addServerOptions } from "./server-options.js";

/** Of the template, or of the server's configuration. */
const DEFAULT = "as the server has it";

const EXAMPLES = `
Examples:
  holdfast create --memory 1g --timeout 1h --metadata agent=writer
  holdfast create --image app:1 --memory 512m --strict
  box=$(holdfast create); holdfast exec $box -- python3 -c 'print(6 * 7)'; holdfast kill $box`;

export function addCreateCommand(program: Command): void {
  const command = program
    .command("create")
    .showHelpAfterError("  Try `holdfast create --help`.")
    .summary("make a sandbox on the server and print its id")
    .description("Makes a sandbox on the server and prints its id. It lives until its time is up or it is killed.")
    .addHelpText("after", EXAMPLES)
    .addOption(describe("--template <name>", "what it starts from", "base"))
    .addOption(describe("--image <name>", "an image to start from instead: its name, digest or id", "the template's"))
    .option("--strict", "refuse what would differ from what was asked for, such as memory below the image's floor")
    .addOption(
      describe(
        "-m, --memory <size>",
        "memory of everything in it. 128m..1g: starts with the first and grows to the second while there is room, instead of a kill",
        DEFAULT,
      ),
    )
    .addOption(describe("--cpus <number>", "CPU time for each second, in CPUs: 1.5, 0.25", DEFAULT))
    .addOption(describe("--pids <number>", "processes and threads at once", DEFAULT))
    .addOption(describe("--disk <size>", "everything written in it", DEFAULT))
    .addOption(describe("--timeout <time>", "how long it lives: 30s, 10m, 2h", "5m"))
    .addOption(describe("--wait <time>", "how long it may wait for room on the host; 0s fails at once", DEFAULT))
    .addOption(
      new Option(
        "--on-timeout <what>",
        "when its time is up. kill: it ends. pause: it keeps files and memory. stop: it keeps its files (default: kill)",
      ).choices(["kill", "pause", "stop"]),
    )
    .option("--auto-resume", "resume it when something asks for it while it is paused")
    .addOption(
      describe("-e, --env <name[=value]>", "a variable for all its commands; may be repeated", "none").argParser(
        collect,
      ),
    )
    .addOption(describe("--metadata <name=value>", "a note to find it by; may be repeated", "none").argParser(collect))
    .option("--json", "print all about it as JSON");
  addServerOptions(command).action(async (flags: CreateFlags) => {
    const { create } = await import("../client/create.js");
    await create(flags);
  });
}

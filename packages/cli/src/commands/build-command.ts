import { type Command, Option } from "commander";
import type { BuildFlags } from "../build/build-flags.js";
import { collect, describe } from "./common-options.js";
import { addImageHostOptions, addScratchOption, WHERE } from "./image-options.js";

const builderOptions = (): Option[] => [
  describe(
    "--builder-memory <size>",
    "memory of each step. 512m..8g: starts with the first and grows to the second",
    "4g, or what the host can give",
  ),
  describe("--cpus <number>", "CPU time for each second, in CPUs", "2, or what there is"),
  describe("--disk <size>", "everything that the steps write", "10g, or what is free"),
  describe("--timeout <time>", "how long all of it may take: 90s, 30m", "30m"),
  describe("--network <on|off>", "whether steps reach the network", "on").choices(["on", "off"]),
  new Option("--retry-on-oom", "try a step that dies for memory once more, at the next size"),
];

const EXAMPLES = `
Examples:
  holdfast build -t app .                                 from holdfast.image.ts or Dockerfile in this directory
  holdfast build -t app:1 -f deploy/Dockerfile --target server --build-arg VERSION=1.2 .
  holdfast build -t app --builder-memory 8g --runtime-memory 512m .
  holdfast build -t app -f image.ts .
  holdfast build --json -t app . | jq -r .image.id

A module exports an image, or a function that returns one and is given { args } of --build-arg. Its local paths start at
CONTEXT, and it needs nothing installed:
  import { Image } from "@holdfast/sdk";
  export default Image.base().aptInstall(["cmake"]).addLocalDir("src", "/app").workdir("/app").runCommands("make -j4");

Progress is told on stderr, the result on stdout. The exit code is 1 if a step fails, with its step, cause, numbers and last
lines; 125 if it could not begin; 130 after Ctrl-C, which cancels the build. A second Ctrl-C does not wait.
${WHERE}`;

export function addBuildCommand(program: Command, setExitCode: (code: number) => void): void {
  const command = program
    .command("build")
    .showHelpAfterError("  Try `holdfast build --help`, or `holdfast build -t NAME .`.")
    .summary("build an image from a Dockerfile or a module")
    .description(
      "Builds an image from a Dockerfile or from a module that declares it. Each step runs in a sandbox of builder size; when all are done the image is started in the memory that it is to be run with at least. Steps that were done before are not done again.",
    )
    .argument("<context>", "the directory that local files are read from")
    .addOption(describe("-t, --tag <name[:tag]>", "what to call it; may be repeated", "no name").argParser(collect))
    .addOption(
      describe(
        "-f, --file <file>",
        "a Dockerfile, or a module (.ts, .mts, .js, .mjs)",
        "holdfast.image.ts (.mts, .js, .mjs) or Dockerfile in CONTEXT",
      ),
    )
    .addOption(
      describe("--runtime-memory <size>", "the memory that it has to start in, and is run with at least", "1g"),
    )
    .addOption(
      describe(
        "--build-arg <name[=value]>",
        "a value for an ARG; a name alone takes the value it has here. May be repeated",
        "none",
      ).argParser(collect),
    )
    .addOption(describe("--target <stage>", "the stage of a Dockerfile to build", "the last"))
    .option("--no-cache", "run every step again, whatever is known")
    .addOption(
      describe("--progress <auto|plain>", "auto: live on a terminal. plain: as lines", "auto").choices([
        "auto",
        "plain",
      ]),
    )
    .option("--json", "print { image, build, tookMs } or { error, build, tookMs } as one line on stdout")
    .addHelpText("after", EXAMPLES);
  addScratchOption(command);
  for (const option of builderOptions()) command.addOption(option.helpGroup("What the build gets:"));
  addImageHostOptions(command).action(async (context: string, flags: BuildFlags) => {
    const { build } = await import("../build/build.js");
    setExitCode(await build(context, flags));
  });
}

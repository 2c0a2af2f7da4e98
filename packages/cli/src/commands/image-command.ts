import type { Command } from "commander";
import type { PruneFlags } from "../images/change.js";
import type { LookFlags } from "../images/look.js";
import type { ImageHostFlags } from "../images/open-host.js";
import { describe } from "./common-options.js";
import { addImageMoveCommands } from "./image-move-commands.js";
import { addImageHostOptions, WHERE } from "./image-options.js";

const NAME = "its name, with or without a tag, its id, or 12 or more digits of its digest";

export function addImageCommand(program: Command, setExitCode: (code: number) => void): void {
  const image = program
    .command("image")
    .showHelpAfterError("  Try `holdfast image --help`.")
    .helpCommand(false)
    .summary("list, name, remove and move images")
    .description("Lists images, names and removes them, and moves them in and out as standard OCI, in constant memory.")
    .addHelpText("after", WHERE);
  addLookCommands(image);
  addChangeCommands(image, setExitCode);
  addImageMoveCommands(image);
}

/** `holdfast image <name>`, with where the images are among its options. */
function add(image: Command, name: string, summary: string, description: string): Command {
  const command = image
    .command(name)
    .showHelpAfterError(`  Try \`holdfast image ${name} --help\`.`)
    .summary(summary)
    .description(description);
  return addImageHostOptions(command);
}

function addLookCommands(image: Command): void {
  add(
    image,
    "ls",
    "list the images",
    "Lists the images, the newest first: UNIQUE is what removing one would free, FLOOR the least memory it runs with.",
  )
    .option("-q, --quiet", "print ids only")
    .option("--json", "print them as a JSON array")
    .action(async (flags: LookFlags) => {
      const { listImages } = await import("../images/look.js");
      await listImages(flags);
    });
  add(image, "inspect", "print all about an image as JSON", "Prints all about an image as JSON.")
    .argument("<name>", NAME)
    .action(async (name: string, flags: LookFlags) => {
      const { inspectImage } = await import("../images/look.js");
      await inspectImage(name, flags);
    });
  add(
    image,
    "history",
    "show what an image's layers were made by",
    "Shows an image's layers, the uppermost first, with what made them. Not over a server's API.",
  )
    .argument("<name>", NAME)
    .option("--json", "print them as a JSON array")
    .action(async (name: string, flags: LookFlags) => {
      const { imageHistory } = await import("../images/look.js");
      await imageHistory(name, flags);
    });
  add(
    image,
    "log",
    "print the log of the build that an image came from",
    "Prints every line of the build that an image came from: time, step, text.",
  )
    .argument("<name>", NAME)
    .option("--json", "print each line as JSON")
    .action(async (name: string, flags: LookFlags) => {
      const { imageLog } = await import("../images/look.js");
      await imageLog(name, flags);
    });
}

function addChangeCommands(image: Command, setExitCode: (code: number) => void): void {
  add(
    image,
    "rm",
    "remove images with all their names",
    "Removes images with all their names, and the layers that nobody else needs. One that a sandbox, an image or a build stands on is not removed, and the exit code is then 1.",
  )
    .argument("<names...>", NAME)
    .action(async (names: string[], flags: ImageHostFlags) => {
      const { removeImages } = await import("../images/change.js");
      setExitCode(await removeImages(names, flags));
    });
  add(
    image,
    "tag",
    "give an image one more name",
    "Gives an image one more name. If another image has it, it is taken from there.",
  )
    .argument("<name>", NAME)
    .argument("<newname>", "the new name, with or without a tag")
    .action(async (name: string, newName: string, flags: ImageHostFlags) => {
      const { tagImage } = await import("../images/change.js");
      await tagImage(name, newName, flags);
    });
  add(image, "untag", "take a name from an image", "Takes a name from an image. The image stays, also without any.")
    .argument("<name>", "the name to take away, with or without a tag")
    .action(async (name: string, flags: ImageHostFlags) => {
      const { untagImage } = await import("../images/change.js");
      await untagImage(name, flags);
    });
  add(
    image,
    "prune",
    "remove what nobody needs",
    "Removes layers, files and builds that no image, cached step or sandbox needs, and what dead processes left. Never what is in use.",
  )
    .option("--all", "also the step cache and images without a name")
    .addOption(
      describe("--unused-for <time>", "only what has not been used for so long: 12h, 14d", "whatever is unused"),
    )
    .option("--json", "print { images, layers, blobs, builds, freedBytes } as JSON")
    .action(async (flags: PruneFlags) => {
      const { pruneImages } = await import("../images/change.js");
      await pruneImages(flags);
    });
}

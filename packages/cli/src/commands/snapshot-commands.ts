import type { Command } from "commander";
import type { ForkFlags, SnapshotFlags } from "../client/snapshot.js";
import { describe } from "./common-options.js";
import { addServerOptions } from "./server-options.js";

export function addSnapshotCommand(program: Command): void {
  const command = program
    .command("snapshot")
    .showHelpAfterError("  Try `holdfast snapshot --help`.")
    .summary("keep a sandbox's files as an image")
    .description(
      "Keeps the files of a running sandbox, as of one moment, as an image, and prints the image's id. The sandbox goes on. Processes and their memory are not kept.",
    )
    .argument("<sandbox>", "its id, or the beginning of it")
    .addOption(describe("-t, --tag <name[:tag]>", "what to call the image", "no name"))
    .option("--json", "print all about it as JSON");
  addServerOptions(command).action(async (sandbox: string, flags: SnapshotFlags) => {
    const { snapshot } = await import("../client/snapshot.js");
    await snapshot(sandbox, flags);
  });
}

export function addForkCommand(program: Command): void {
  const command = program
    .command("fork")
    .showHelpAfterError("  Try `holdfast fork --help`.")
    .summary("make copies of a running sandbox")
    .description(
      "Makes sandboxes with the files of a running one as of now, and prints their ids. They have its limits, and none of its processes. If one cannot be made, none is.",
    )
    .argument("<sandbox>", "its id, or the beginning of it")
    .addOption(describe("-n, --count <number>", "how many, at most 100", "1"))
    .addOption(describe("--timeout <time>", "how long each lives: 30s, 10m, 2h", "as long as the original was given"))
    .option("--json", "print all about them as JSON");
  addServerOptions(command).action(async (sandbox: string, flags: ForkFlags) => {
    const { fork } = await import("../client/snapshot.js");
    await fork(sandbox, flags);
  });
}

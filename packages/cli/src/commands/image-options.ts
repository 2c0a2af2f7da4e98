/** How the commands about images are told where these are. */
import type { Command } from "commander";
import { describe } from "./common-options.js";

const GROUP = "Where the images are:";

export const WHERE = `
Where the images are: on this machine, in the state directory, with or without a server that runs on it; as root. If a server
is named (--url, --api-key, HOLDFAST_URL or HOLDFAST_API_KEY), it is asked instead, and the images are those of its key.`;

export function addImageHostOptions(command: Command): Command {
  return command
    .addOption(describe("--url <address>", "a server to ask instead", "$HOLDFAST_URL").helpGroup(GROUP))
    .addOption(describe("--api-key <key>", "the key to show it", "$HOLDFAST_API_KEY").helpGroup(GROUP))
    .addOption(
      describe("--state-dir <dir>", "where sandboxes, their disks and images are kept", "/var/lib/holdfast").helpGroup(
        GROUP,
      ),
    )
    .addOption(describe("--pool <kind>", "how disks are bounded, see holdfast run --help", "btrfs").helpGroup(GROUP));
}

export function addScratchOption(command: Command): Command {
  return command.addOption(
    describe("--scratch <dir>", "where temporary files go", "$HOLDFAST_SCRATCH_DIR, else in the state directory"),
  );
}

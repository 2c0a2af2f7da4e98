/** How the client commands are told which server is meant. */
import type { Command } from "commander";
import { describe } from "./common-options.js";

const GROUP = "Which server:";

export function addServerOptions(command: Command): Command {
  return command
    .addOption(
      describe("--url <address>", "the server's address", "$HOLDFAST_URL, else this machine's").helpGroup(GROUP),
    )
    .addOption(describe("--api-key <key>", "the key to show it", "$HOLDFAST_API_KEY").helpGroup(GROUP))
    .addOption(
      describe(
        "--state-dir <dir>",
        "of this machine's server, which root reaches through its socket without a key",
        "/var/lib/holdfast",
      ).helpGroup(GROUP),
    );
}

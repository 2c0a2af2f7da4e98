import type { Command } from "commander";
import type { KeyCreateFlags, KeyFlags } from "../keys/keys.js";
import { describe, stateDirOption } from "./common-options.js";

export function addKeyCommand(program: Command): void {
  const key = program
    .command("key")
    .showHelpAfterError("  Try `holdfast key --help`.")
    .helpCommand(false)
    .summary("make, list and revoke API keys")
    .description(
      "Makes, lists and revokes API keys. Works on the server's database, as root on its machine, whether the server runs or not. A key sees only its own sandboxes.",
    );
  key
    .command("create")
    .showHelpAfterError("  Try `holdfast key create --help`.")
    .summary("make a key and print it; it is shown only now")
    .description("Makes a key and prints it on stdout. It is stored hashed, so this is the only time it is shown.")
    .argument("<name>", "for you to know it by")
    .addOption(
      describe("--sandboxes <number|none>", "how many sandboxes at once, paused ones included", "as configured"),
    )
    .addOption(describe("-m, --memory <size|none>", "memory of them all, by their limits", "as configured"))
    .addOption(describe("--rate <number|none>", "requests a second", "as configured"))
    .option("--json", "print it with its id as JSON")
    .addOption(stateDirOption())
    .action(async (name: string, flags: KeyCreateFlags) => {
      const { createKey } = await import("../keys/keys.js");
      await createKey(name, flags);
    });
  key
    .command("list")
    .showHelpAfterError("  Try `holdfast key list --help`.")
    .summary("list the keys, and how to recognise them")
    .description("Lists the keys: id, name, first and last digits, limits.")
    .option("--json", "print them as a JSON array")
    .addOption(stateDirOption())
    .action(async (flags: KeyFlags) => {
      const { listKeys } = await import("../keys/keys.js");
      await listKeys(flags);
    });
  key
    .command("revoke")
    .showHelpAfterError("  Try `holdfast key revoke --help`.")
    .summary("make a key worthless, for good")
    .description("Makes a key worthless, for good. Its sandboxes live on until their time is up.")
    .argument("<id>", "as `holdfast key list` shows it")
    .addOption(stateDirOption())
    .action(async (id: string, flags: KeyFlags) => {
      const { revokeKey } = await import("../keys/keys.js");
      await revokeKey(id, flags);
    });
}

import type { Command } from "commander";
import type { CopyFlags } from "../cp/copy.js";
import { addServerOptions } from "./server-options.js";

const EXAMPLES = `
Examples:
  holdfast cp data.csv iqo2:/home/user/          a file in
  holdfast cp iqo2:out/report.pdf .              a file out; relative paths inside start at the user's home
  holdfast cp src iqo2:/home/user/project        a directory in, with everything below it
  holdfast cp iqo2:/home/user/project/. result   what is in a directory, out
  pg_dump shop | holdfast cp - iqo2:/tmp/shop.sql
  holdfast cp iqo2:/var/log/app.log - | tail

Directories need tar inside the sandbox. What comes out is not trusted: names that would leave the target directory end the
copy, links that lead out of it, devices and set-id bits are left out, and no link is followed.`;

export function addCpCommand(program: Command, setExitCode: (code: number) => void): void {
  const command = program
    .command("cp")
    .showHelpAfterError("  Try `holdfast cp --help`.")
    .summary("copy files into a sandbox or out of it")
    .description(
      "Copies a file or a directory into a sandbox or out of it. One of the two is SANDBOX:PATH; - is stdin or stdout. Exits with 1 if something was left out.",
    )
    .argument("<src>", "a path, SANDBOX:PATH or -")
    .argument("<dst>", "a path, SANDBOX:PATH or -")
    .option("-u, --user <name>", "whose files they are inside (default: the sandbox's user)")
    .addHelpText("after", EXAMPLES);
  addServerOptions(command).action(async (source: string, destination: string, flags: CopyFlags) => {
    const { copy } = await import("../cp/copy.js");
    setExitCode(await copy(source, destination, flags));
  });
}

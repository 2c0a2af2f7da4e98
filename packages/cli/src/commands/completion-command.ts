import { Argument, type Command } from "commander";
import { SHELLS, type Shell } from "../completion/shells.js";

export function addCompletionCommand(program: Command): void {
  program
    .command("completion")
    .showHelpAfterError("  Try `holdfast completion --help`.")
    .summary("print a completion script for bash, zsh or fish")
    .description("Prints a completion script, made from this very command line, so it knows every option there is.")
    .addArgument(new Argument("<shell>", "the shell to complete in").choices(SHELLS))
    .addHelpText(
      "after",
      `
To have it in every shell:
  bash   holdfast completion bash > /etc/bash_completion.d/holdfast
  zsh    holdfast completion zsh > /usr/local/share/zsh/site-functions/_holdfast
  fish   holdfast completion fish > ~/.config/fish/completions/holdfast.fish`,
    )
    .action(async (shell: Shell) => {
      const { completionScript } = await import("../completion/completion-script.js");
      process.stdout.write(completionScript(shell, program));
    });
}

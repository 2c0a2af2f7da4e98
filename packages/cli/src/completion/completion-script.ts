import type { Command } from "commander";
import { bashScript } from "./bash.js";
import { readCommandTree } from "./command-tree.js";
import { fishScript } from "./fish.js";
import type { Shell } from "./shells.js";
import { zshScript } from "./zsh.js";

export function completionScript(shell: Shell, program: Command): string {
  const tree = readCommandTree(program);
  switch (shell) {
    case "bash":
      return bashScript(tree);
    case "zsh":
      return zshScript(tree);
    case "fish":
      return fishScript(tree);
  }
}

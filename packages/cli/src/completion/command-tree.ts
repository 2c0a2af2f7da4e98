/** What a completion script needs to know of the command line, read from commander's own tree. */
import type { Command, Option } from "commander";

export interface OptionFacts {
  /** "-m", "--memory": as typed. */
  readonly names: readonly string[];
  readonly description: string;
  readonly takesValue: boolean;
  /** The values there are, if they are few and known. */
  readonly choices: readonly string[];
  /** What to offer otherwise. */
  readonly files: "files" | "directories" | "none";
}

export interface CommandFacts {
  readonly name: string;
  readonly summary: string;
  readonly options: readonly OptionFacts[];
  /** Known values of its first argument. */
  readonly argumentChoices: readonly string[];
  /** True if what follows is a program of the host and that program's own arguments. */
  readonly runsProgram: boolean;
}

const KNOWN_VALUES: Readonly<Record<string, readonly string[]>> = {
  "<kind>": ["btrfs", "dir"],
  "<host|dir>": ["host"],
};

function optionFacts(option: Option): OptionFacts {
  const value = /[<[].*$/.exec(option.flags)?.[0] ?? "";
  return {
    names: [option.short, option.long].filter((name) => name !== undefined),
    description: firstSentence(option.description),
    takesValue: option.required || option.optional,
    choices: option.argChoices ?? KNOWN_VALUES[value] ?? [],
    files: /dir/.test(value) ? "directories" : /file|src/.test(value) ? "files" : "none",
  };
}

/** Shells show descriptions on one line, and not all of them cope with quotes. */
function firstSentence(text: string): string {
  return (text.replace(/ \(default: .*\)$/, "").split(/[.;:]\s/)[0] ?? "").replace(/['"`\\[\]]/g, "");
}

export function readCommandTree(program: Command): {
  readonly commands: readonly CommandFacts[];
  readonly options: readonly OptionFacts[];
} {
  const help = program.createHelp();
  const commands = help.visibleCommands(program).map((command) => ({
    name: command.name(),
    summary: firstSentence(command.summary() || command.description()),
    options: help.visibleOptions(command).map(optionFacts),
    argumentChoices:
      command.name() === "help"
        ? program.commands.map((other) => other.name())
        : (command.registeredArguments[0]?.argChoices ?? []),
    runsProgram: command.registeredArguments.some((argument) => argument.variadic),
  }));
  return { commands, options: help.visibleOptions(program).map(optionFacts) };
}

/** What a completion script needs to know of the command line, read from commander's own tree. */
import type { Argument, Command, Option } from "commander";

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

export interface ArgumentFacts {
  readonly offers: "choices" | "sandboxes" | "files" | "program" | "nothing";
  readonly choices: readonly string[];
  readonly repeated: boolean;
}

export interface CommandFacts {
  readonly name: string;
  readonly summary: string;
  readonly options: readonly OptionFacts[];
  /** By position. What follows a program is that program's own business. */
  readonly arguments: readonly ArgumentFacts[];
  readonly commands: readonly CommandFacts[];
}

export interface CommandTree {
  readonly commands: readonly CommandFacts[];
  readonly options: readonly OptionFacts[];
}

/** Prints the ids to offer for a sandbox, one a line. */
export const LIST_SANDBOXES = "holdfast ps --quiet 2>/dev/null";

const KNOWN_VALUES: Readonly<Record<string, readonly string[]>> = {
  "<kind>": ["btrfs", "dir"],
  "<host|name|dir>": ["host", "base"],
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

function argumentFacts(argument: Argument): ArgumentFacts {
  const choices = argument.argChoices ?? [];
  const name = argument.name();
  const offers =
    choices.length > 0
      ? "choices"
      : name === "sandbox" || name === "sandboxes"
        ? "sandboxes"
        : ["src", "dst", "file", "context"].includes(name)
          ? "files"
          : name === "command"
            ? "program"
            : "nothing";
  return { offers, choices, repeated: argument.variadic };
}

/** Shells show descriptions on one line, and not all of them cope with quotes. */
function firstSentence(text: string): string {
  return (text.replace(/ \(default: .*\)$/, "").split(/[.;:]\s/)[0] ?? "").replace(/['"`\\[\]]/g, "");
}

function commandFacts(command: Command, program: Command): CommandFacts {
  const help = program.createHelp();
  const names = program.commands.map((other) => other.name());
  return {
    name: command.name(),
    summary: firstSentence(command.summary() || command.description()),
    options: help.visibleOptions(command).map(optionFacts),
    arguments:
      command.name() === "help"
        ? [{ offers: "choices", choices: names, repeated: false }]
        : command.registeredArguments.map(argumentFacts),
    commands: command.commands.map((inner) => commandFacts(inner, program)),
  };
}

export function readCommandTree(program: Command): CommandTree {
  const help = program.createHelp();
  return {
    commands: help.visibleCommands(program).map((command) => commandFacts(command, program)),
    options: help.visibleOptions(program).map(optionFacts),
  };
}

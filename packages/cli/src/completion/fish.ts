import type { CommandFacts, OptionFacts } from "./command-tree.js";

interface Tree {
  readonly commands: readonly CommandFacts[];
  readonly options: readonly OptionFacts[];
}

function optionLine(condition: string, option: OptionFacts): string {
  const names = option.names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const offers = [
    ...option.choices,
    ...(option.files === "directories" ? ["(__fish_complete_directories)"] : []),
    ...(option.files === "files" ? ["(__fish_complete_path)"] : []),
  ];
  const value = option.takesValue ? ` -x${offers.length === 0 ? "" : ` -a '${offers.join(" ")}'`}` : "";
  return `complete -c holdfast -n '${condition}' ${names.join(" ")}${value} -d '${option.description}'`;
}

function commandLines(command: CommandFacts): string[] {
  const inside = `__fish_seen_subcommand_from ${command.name}`;
  const rest = command.runsProgram
    ? [`complete -c holdfast -n '${inside}' -x -a '(__fish_complete_subcommand --fcs-skip=2)'`]
    : command.argumentChoices.length > 0
      ? [`complete -c holdfast -n '${inside}' -x -a '${command.argumentChoices.join(" ")}'`]
      : [];
  return [
    `complete -c holdfast -n __fish_use_subcommand -x -a ${command.name} -d '${command.summary}'`,
    ...command.options.map((option) => optionLine(inside, option)),
    ...rest,
  ];
}

export function fishScript({ commands, options }: Tree): string {
  return `${[
    "# fish completion for holdfast; made by `holdfast completion fish`.",
    ...options.map((option) => optionLine("__fish_use_subcommand", option)),
    ...commands.flatMap(commandLines),
  ].join("\n")}\n`;
}

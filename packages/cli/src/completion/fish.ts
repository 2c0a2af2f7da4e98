import {
  type ArgumentFacts,
  type CommandFacts,
  type CommandTree,
  LIST_SANDBOXES,
  type OptionFacts,
} from "./command-tree.js";

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

/** `skip`: how many words stand before a program. */
function argumentLine(condition: string, argument: ArgumentFacts, skip: number): string[] {
  const offer = (what: string): string[] => [`complete -c holdfast -n '${condition}' -x -a '${what}'`];
  switch (argument.offers) {
    case "choices":
      return offer(argument.choices.join(" "));
    case "sandboxes":
      return offer(`(${LIST_SANDBOXES})`);
    case "program":
      return offer(`(__fish_complete_subcommand --fcs-skip=${skip})`);
    case "files":
      return [`complete -c holdfast -n '${condition}' -F`];
    case "nothing":
      return [];
  }
}

/** `seen`: the conditions that the words before it are there; `before`: that none of its siblings is. */
function commandLines(command: CommandFacts, seen: readonly string[], before: string): string[] {
  const now = [...seen, `__fish_seen_subcommand_from ${command.name}`];
  const inside = now.join("; and ");
  const names = command.commands.map(({ name }) => name).join(" ");
  return [
    `complete -c holdfast -n '${before}' -x -a ${command.name} -d '${command.summary}'`,
    ...command.options.map((option) => optionLine(inside, option)),
    ...command.arguments.flatMap((argument, index) => argumentLine(inside, argument, now.length + 1 + index)),
    ...command.commands.flatMap((inner) =>
      commandLines(inner, now, `${inside}; and not __fish_seen_subcommand_from ${names}`),
    ),
  ];
}

export function fishScript({ commands, options }: CommandTree): string {
  return `${[
    "# fish completion for holdfast; made by `holdfast completion fish`.",
    ...options.map((option) => optionLine("__fish_use_subcommand", option)),
    ...commands.flatMap((command) => commandLines(command, [], "__fish_use_subcommand")),
  ].join("\n")}\n`;
}

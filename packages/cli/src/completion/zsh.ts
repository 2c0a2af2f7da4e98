import {
  type ArgumentFacts,
  type CommandFacts,
  type CommandTree,
  LIST_SANDBOXES,
  type OptionFacts,
} from "./command-tree.js";

const escapeColons = (text: string): string => text.replaceAll(":", "\\:");

function optionSpecs(option: OptionFacts): string[] {
  const choices = option.choices.length > 0 ? `(${option.choices.join(" ")})` : "";
  const action = option.files === "none" ? choices : option.files === "directories" ? "_files -/" : "_files";
  const value = option.takesValue ? `:value:${action}` : "";
  return option.names.map((name) => {
    const equals = option.takesValue && name.startsWith("--") ? "=" : "";
    return `'*${name}${equals}[${escapeColons(option.description)}]${value}'`;
  });
}

function argumentSpecs(argument: ArgumentFacts, index: number): string[] {
  const place = argument.repeated ? "*" : String(index + 1);
  switch (argument.offers) {
    case "choices":
      return [`'${place}:argument:(${argument.choices.join(" ")})'`];
    case "sandboxes":
      return [`'${place}:sandbox:_holdfast_sandboxes'`];
    case "files":
      return [`'${place}:file:_files'`];
    case "program":
      return [`'(-)${place}:program:_command_names -e'`, "'*::arguments:_normal'"];
    case "nothing":
      return [];
  }
}

function describe(commands: readonly CommandFacts[]): string {
  return commands.map((command) => `'${command.name}:${escapeColons(command.summary)}'`).join(" ");
}

function commandCase(command: CommandFacts): string {
  if (command.commands.length > 0) {
    return `    ${command.name})
      _arguments -C '1:command:->command' '*::options:->options'
      case $state in
      command) commands=(${describe(command.commands)}); _describe command commands ;;
      options)
        case $line[1] in
${command.commands.map(commandCase).join("\n")}
        esac ;;
      esac ;;`;
  }
  const program = command.arguments.findIndex(({ offers }) => offers === "program");
  const positional = program === -1 ? command.arguments : command.arguments.slice(0, program + 1);
  const specs = [...command.options.flatMap(optionSpecs), ...positional.flatMap(argumentSpecs)];
  // -A: options stop at the first argument; for `exec` that is the sandbox, behind which they go on.
  const stop = program === -1 ? "" : program === 0 ? '-S -A "-*" ' : "-S ";
  return `    ${command.name})\n      _arguments ${stop}\\\n        ${specs.join(" \\\n        ")} ;;`;
}

export function zshScript({ commands, options }: CommandTree): string {
  return `#compdef holdfast
# zsh completion for holdfast; made by \`holdfast completion zsh\`.
_holdfast_sandboxes() {
  local -a ids
  ids=(\${(f)"$(${LIST_SANDBOXES})"})
  compadd -a ids
}
_holdfast() {
  local context state line
  local -a commands
  commands=(${describe(commands)})
  _arguments -C \\
    ${options.flatMap(optionSpecs).join(" \\\n    ")} \\
    '1:command:->command' \\
    '*::options:->options'
  case $state in
  command) _describe command commands ;;
  options)
    case $line[1] in
${commands.map(commandCase).join("\n")}
    esac ;;
  esac
}
# Loaded by name from fpath it is called; sourced, it is registered.
if [[ $funcstack[1] == _holdfast ]]; then _holdfast "$@"; else compdef _holdfast holdfast; fi
`;
}

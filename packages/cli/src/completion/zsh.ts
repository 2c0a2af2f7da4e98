import type { CommandFacts, OptionFacts } from "./command-tree.js";

interface Tree {
  readonly commands: readonly CommandFacts[];
  readonly options: readonly OptionFacts[];
}

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

function commandCase(command: CommandFacts): string {
  const specs = command.options.flatMap(optionSpecs);
  if (command.runsProgram) specs.push("'(-)1:program:_command_names -e'", "'*::arguments:_normal'");
  else if (command.argumentChoices.length > 0) specs.push(`'1:argument:(${command.argumentChoices.join(" ")})'`);
  // -S and -A: options stop at the program's name, as they do for holdfast itself.
  const stop = command.runsProgram ? '-S -A "-*" ' : "";
  return `    ${command.name})\n      _arguments ${stop}\\\n        ${specs.join(" \\\n        ")} ;;`;
}

export function zshScript({ commands, options }: Tree): string {
  const described = commands.map((command) => `'${command.name}:${escapeColons(command.summary)}'`);
  return `#compdef holdfast
# zsh completion for holdfast; made by \`holdfast completion zsh\`.
_holdfast() {
  local context state line
  local -a commands
  commands=(
    ${described.join("\n    ")}
  )
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

import type { CommandFacts, OptionFacts } from "./command-tree.js";

interface Tree {
  readonly commands: readonly CommandFacts[];
  readonly options: readonly OptionFacts[];
}

const words = (options: readonly OptionFacts[]): string => options.flatMap((option) => option.names).join(" ");

function valueCases(options: readonly OptionFacts[]): string {
  const lines = options
    .filter((option) => option.takesValue)
    .map((option) => {
      const offers = [
        option.choices.length > 0 ? `-W "${option.choices.join(" ")}"` : "",
        option.files === "directories" ? "-d" : option.files === "files" ? "-f" : "",
      ].filter((offer) => offer !== "");
      const reply = offers.length === 0 ? ":" : `COMPREPLY=($(compgen ${offers.join(" ")} -- "$cur"))`;
      return `        ${option.names.join("|")}) ${reply}; return ;;`;
    });
  return lines.length === 0 ? "" : `      case "$prev" in\n${lines.join("\n")}\n      esac\n`;
}

function commandCase(command: CommandFacts): string {
  const valued = command.options.filter((option) => option.takesValue).flatMap((option) => option.names);
  const plain = command.argumentChoices.length > 0 ? `"${command.argumentChoices.join(" ")}"` : "";
  // Once the program's name stands there, the rest is that program's own business.
  const program = command.runsProgram
    ? `      local i skip=
      for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ -n $skip ]]; then skip=; continue; fi
        case "\${COMP_WORDS[i]}" in
          ${valued.join("|")}) skip=1 ;;
          --) COMPREPLY=($(compgen -c -- "$cur")); ((i + 1 < COMP_CWORD)) && COMPREPLY=($(compgen -f -- "$cur")); return ;;
          -*) ;;
          *) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        esac
      done
`
    : "";
  const offer = command.runsProgram
    ? `$(compgen -c -- "$cur")`
    : plain === ""
      ? ""
      : `$(compgen -W ${plain} -- "$cur")`;
  return `    ${command.name})
${valueCases(command.options)}${program}      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "${words(command.options)}" -- "$cur")); else COMPREPLY=(${offer}); fi ;;`;
}

export function bashScript({ commands, options }: Tree): string {
  return `# bash completion for holdfast; made by \`holdfast completion bash\`.
_holdfast() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" prev="\${COMP_WORDS[COMP_CWORD-1]}"
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "${commands.map((command) => command.name).join(" ")} ${words(options)}" -- "$cur"))
    return
  fi
  case "\${COMP_WORDS[1]}" in
${commands.map(commandCase).join("\n")}
  esac
}
complete -o filenames -F _holdfast holdfast
`;
}

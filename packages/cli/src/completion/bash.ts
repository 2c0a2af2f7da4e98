import {
  type ArgumentFacts,
  type CommandFacts,
  type CommandTree,
  LIST_SANDBOXES,
  type OptionFacts,
} from "./command-tree.js";

const words = (options: readonly OptionFacts[]): string => options.flatMap((option) => option.names).join(" ");
const reply = (generator: string): string => `COMPREPLY=($(compgen ${generator} -- "$cur"))`;

function valueCases(options: readonly OptionFacts[]): string {
  const lines = options
    .filter((option) => option.takesValue)
    .map((option) => {
      const offers = [
        option.choices.length > 0 ? `-W "${option.choices.join(" ")}"` : "",
        option.files === "directories" ? "-d" : option.files === "files" ? "-f" : "",
      ].filter((offer) => offer !== "");
      return `        ${option.names.join("|")}) ${offers.length === 0 ? ":" : reply(offers.join(" "))}; return ;;`;
    });
  return lines.length === 0 ? "" : `      case "$prev" in\n${lines.join("\n")}\n      esac\n`;
}

function offer(argument: ArgumentFacts): string {
  switch (argument.offers) {
    case "choices":
      return reply(`-W "${argument.choices.join(" ")}"`);
    case "sandboxes":
      return reply(`-W "$(${LIST_SANDBOXES})"`);
    case "files":
      return reply("-f");
    case "program":
      return reply("-c");
    case "nothing":
      return ":";
  }
}

function argumentCases(facts: readonly ArgumentFacts[]): string {
  const programAt = facts.findIndex(({ offers }) => offers === "program");
  const cases = facts.map((argument, index) => {
    if (programAt !== -1 && index > programAt) return `*) ${reply("-f")} ;;`;
    return `${argument.repeated ? "*" : index}) ${offer(argument)} ;;`;
  });
  return cases.length === 0 ? ":" : `case $count in ${cases.join(" ")} esac`;
}

/** `at` is where its own words begin. */
function commandCase(command: CommandFacts, at: number): string {
  if (command.commands.length > 0) {
    const names = command.commands.map((inner) => inner.name).join(" ");
    return `    ${command.name})
      if ((COMP_CWORD == ${at})); then ${reply(`-W "${names}"`)}; return; fi
      case "\${COMP_WORDS[${at}]}" in
${command.commands.map((inner) => commandCase(inner, at + 1)).join("\n")}
      esac ;;`;
  }
  const valued = command.options.filter((option) => option.takesValue);
  const programAt = command.arguments.findIndex(({ offers }) => offers === "program");
  return `    ${command.name})
${valueCases(command.options)}      _holdfast_count ${at} "${words(valued)}" ${programAt === -1 ? 99 : programAt}
      if [[ -z $rest && $cur == -* ]]; then ${reply(`-W "${words(command.options)}"`)}
      else ${argumentCases(command.arguments)}; fi ;;`;
}

export function bashScript({ commands, options }: CommandTree): string {
  return `# bash completion for holdfast; made by \`holdfast completion bash\`.
# Counts the words before the cursor, from word $1, that are neither options nor their values ($2). Options end at "--" and
# behind a program's name, which is argument $3.
_holdfast_count() {
  local i skip= word
  count=0 rest=
  for ((i = $1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    if [[ -n $skip ]]; then skip=; continue; fi
    if [[ -z $rest && $word == -- ]]; then rest=1; continue; fi
    if [[ -z $rest && $word == -* ]]; then if [[ " $2 " == *" $word "* ]]; then skip=1; fi; continue; fi
    count=$((count + 1))
    if ((count > $3)); then rest=1; fi
  done
}
_holdfast() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" prev="\${COMP_WORDS[COMP_CWORD-1]}" count rest
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    ${reply(`-W "${commands.map((command) => command.name).join(" ")} ${words(options)}"`)}
    return
  fi
  case "\${COMP_WORDS[1]}" in
${commands.map((command) => commandCase(command, 2)).join("\n")}
  esac
}
complete -o filenames -F _holdfast holdfast
`;
}

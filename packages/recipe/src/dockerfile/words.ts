/** How the arguments of an instruction are told apart. */

/** At white space outside of quotes. Quotes and escapes stay in the words. */
export function splitWords(text: string, escapeCharacter: string): string[] {
  const words: string[] = [];
  let word = "";
  let quote = "";
  for (let index = 0; index < text.length; index++) {
    const character = text[index] as string;
    if (quote === "" && /\s/.test(character)) {
      if (word !== "") words.push(word);
      word = "";
      continue;
    }
    word += character;
    if (character === escapeCharacter && quote !== "'" && index + 1 < text.length) {
      index += 1;
      word += text[index];
    } else if (quote === "" && (character === "'" || character === '"')) {
      quote = character;
    } else if (character === quote) {
      quote = "";
    }
  }
  if (word !== "") words.push(word);
  return words;
}

/** The exec form, `["a", "b"]`. Undefined: it is not JSON, so it is text. Null: JSON, but not a list of texts. */
export function parseJsonForm(text: string): string[] | null | undefined {
  if (!text.startsWith("[")) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // As in docker: what only looks like a list is a shell command, such as `[ -e /x ] && y`.
    return undefined;
  }
  if (!Array.isArray(value) || value.some((item) => typeof item !== "string")) return null;
  return value as string[];
}

export interface Flags {
  /** Null: the flag stands without a value. */
  readonly flags: ReadonlyMap<string, string | null>;
  readonly rest: string;
}

/** `--name=value` in front of the arguments. */
export function takeFlags(text: string): Flags {
  const flags = new Map<string, string | null>();
  let rest = text;
  for (;;) {
    const [whole, name, value] = /^--([A-Za-z][A-Za-z0-9-]*)(?:=(\S*))?(?:\s+|$)/.exec(rest) ?? [];
    if (whole === undefined || name === undefined) return { flags, rest };
    flags.set(name, value ?? null);
    rest = rest.slice(whole.length);
  }
}

/** `WWW-Authenticate`, as whoever sits at the other end has written it. */

export interface Challenge {
  /** In lower case: `basic`, `bearer`. */
  readonly scheme: string;
  readonly parameters: ReadonlyMap<string, string>;
}

const MAX_LENGTH = 8192;
const TOKEN = /[!#$%&'*+\-.^_`|~0-9A-Za-z]+/y;
const SPACE = /[ \t]*/y;
const BETWEEN = /[ \t,]*/y;
/** What a challenge may have instead of parameters; nobody here needs it. */
const TOKEN68 = /[0-9A-Za-z\-._~+/]+=*(?=[ \t]*(?:,|$))/y;

/** What cannot be read ends the list: the challenges before it still count. */
export function parseChallenges(header: string | undefined): Challenge[] {
  const challenges: { scheme: string; parameters: Map<string, string> }[] = [];
  if (header === undefined || header.length > MAX_LENGTH) return challenges;
  let position = 0;
  const take = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = position;
    const found = pattern.exec(header)?.[0];
    if (found !== undefined) position += found.length;
    return found;
  };
  for (;;) {
    take(BETWEEN);
    if (position >= header.length) return challenges;
    const start = position;
    const word = take(TOKEN);
    if (word === undefined) return challenges;
    take(SPACE);
    if (header[position] === "=") {
      position++;
      take(SPACE);
      const value = header[position] === '"' ? takeQuoted() : take(TOKEN);
      const current = challenges.at(-1);
      if (value === undefined || current === undefined) return challenges;
      const key = word.toLowerCase();
      // Said twice, the first counts: nobody can override a realm by adding another.
      if (!current.parameters.has(key)) current.parameters.set(key, value);
      continue;
    }
    challenges.push({ scheme: word.toLowerCase(), parameters: new Map() });
    if (position === start + word.length) continue;
    // A name with `=` behind it is a parameter, unless all of it is one token68.
    const before = position;
    const parameter = take(TOKEN);
    take(SPACE);
    const isParameter =
      parameter !== undefined && header[position] === "=" && !/^=*[ \t]*(?:,|$)/.test(header.slice(position));
    position = before;
    if (!isParameter) take(TOKEN68);
  }

  function takeQuoted(): string | undefined {
    let text = "";
    for (position++; position < (header as string).length; position++) {
      const character = (header as string)[position];
      if (character === '"') {
        position++;
        return text;
      }
      if (character === "\\") position++;
      text += (header as string)[position] ?? "";
    }
    return undefined;
  }
}

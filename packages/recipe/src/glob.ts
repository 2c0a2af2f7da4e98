/**
 * Wildcards as Dockerfiles know them: `*` is any text without a slash, `?` one character, `[a-z]` and `[^a-z]` one of a set,
 * and `\` takes the meaning of the next character away. In ignore files `**` is any number of directories.
 */
import { HoldfastError } from "@holdfast/protocol";

export function hasWildcard(pattern: string): boolean {
  return /[*?[\\]/.test(pattern);
}

export interface GlobOptions {
  /** `**` spans directories, as in ignore files. */
  readonly doubleStar?: boolean;
}

/** A regular expression for whole paths. */
export function globPattern(glob: string, { doubleStar = false }: GlobOptions = {}): RegExp {
  let source = "";
  for (let index = 0; index < glob.length; index++) {
    const character = glob[index] as string;
    if (character === "*" && doubleStar && glob[index + 1] === "*") {
      index += glob[index + 2] === "/" ? 2 : 1;
      source += index + 1 >= glob.length ? ".*" : "(?:.*/)?";
    } else if (character === "*") {
      source += "[^/]*";
      while (!doubleStar && glob[index + 1] === "*") index += 1;
    } else if (character === "?") {
      source += "[^/]";
    } else if (character === "[") {
      const set = readSet(glob, index);
      source += set.source;
      index = set.end;
    } else if (character === "\\" && index + 1 < glob.length) {
      index += 1;
      source += literal(glob[index] as string);
    } else {
      source += literal(character);
    }
  }
  return new RegExp(`^${source}$`, "su");
}

function literal(character: string): string {
  return character.replace(/[\\^$.*+?()[\]{}|/]/g, (special) => `\\${special}`);
}

/** Inside a set the hyphen is special too, and only there may it be escaped. */
function literalInSet(character: string): string {
  return character === "-" ? "\\-" : literal(character);
}

function readSet(glob: string, start: number): { source: string; end: number } {
  let index = start + 1;
  const negated = glob[index] === "^";
  if (negated) index += 1;
  let source = "";
  for (let first = true; first || glob[index] !== "]"; first = false) {
    const low = readSetCharacter(glob, index);
    index = low.end;
    if (glob[index] === "-" && glob[index + 1] !== "]") {
      const high = readSetCharacter(glob, index + 1);
      index = high.end;
      if (high.character < low.character) throw malformed(glob);
      source += `${literalInSet(low.character)}-${literalInSet(high.character)}`;
    } else {
      source += literalInSet(low.character);
    }
  }
  // A set never matches the slash between two names.
  return { source: `(?!/)[${negated ? "^" : ""}${source}]`, end: index };
}

function readSetCharacter(glob: string, start: number): { character: string; end: number } {
  const index = glob[start] === "\\" ? start + 1 : start;
  const code = glob.codePointAt(index);
  if (code === undefined) throw malformed(glob);
  const character = String.fromCodePoint(code);
  return { character, end: index + character.length };
}

function malformed(glob: string): HoldfastError {
  return new HoldfastError("invalid_argument", `the pattern ${JSON.stringify(glob)} has a "[" that is not ended well`, {
    hint: "Write \\[ for the character itself.",
  });
}

/**
 * Wildcards as Dockerfiles know them: `*` is any text without a slash, `?` one character, `[a-z]` and `[^a-z]` one of a set,
 * and `\` takes the meaning of the next character away. In ignore files `**` is any number of directories.
 *
 * Patterns and names may both be somebody else's, so no pattern may be slow: all places in it where a match can be are
 * followed at once, character by character. A regular expression would try them one after the other.
 */
import { HoldfastError } from "@holdfast/protocol";

export function hasWildcard(pattern: string): boolean {
  return /[*?[\\]/.test(pattern);
}

export interface GlobOptions {
  /** `**` spans directories, as in ignore files. */
  readonly doubleStar?: boolean;
}

export interface GlobPattern {
  /** Whether the whole path matches. */
  test(path: string): boolean;
}

type Range = readonly [low: number, high: number];

type Token =
  /** One character of these; a set never matches the slash between two names. */
  | { readonly kind: "one"; readonly ranges: readonly Range[]; readonly negated: boolean; readonly slash: boolean }
  /** Any number of characters of one name. */
  | { readonly kind: "many" }
  /** Any number of characters. */
  | { readonly kind: "all" }
  /** Nothing, or what `directories` after it takes. */
  | { readonly kind: "optional" }
  /** Any number of characters that end with a slash. */
  | { readonly kind: "directories" };

const SLASH = 0x2f;
const ANY_BUT_SLASH: Token = { kind: "one", ranges: [], negated: true, slash: false };

export function globPattern(glob: string, options: GlobOptions = {}): GlobPattern {
  const tokens = parse(glob, options);
  return { test: (path) => matches(tokens, path) };
}

function parse(glob: string, { doubleStar = false }: GlobOptions): Token[] {
  const tokens: Token[] = [];
  for (let index = 0; index < glob.length; index++) {
    const character = glob[index] as string;
    if (character === "*" && doubleStar && glob[index + 1] === "*") {
      index += glob[index + 2] === "/" ? 2 : 1;
      if (index + 1 >= glob.length) tokens.push({ kind: "all" });
      else tokens.push({ kind: "optional" }, { kind: "directories" });
    } else if (character === "*") {
      tokens.push({ kind: "many" });
      while (!doubleStar && glob[index + 1] === "*") index += 1;
    } else if (character === "?") {
      tokens.push(ANY_BUT_SLASH);
    } else if (character === "[") {
      const set = readSet(glob, index);
      tokens.push(set.token);
      index = set.end;
    } else {
      if (character === "\\" && index + 1 < glob.length) index += 1;
      const code = glob.codePointAt(index) as number;
      if (code > 0xffff) index += 1;
      tokens.push({ kind: "one", ranges: [[code, code]], negated: false, slash: true });
    }
  }
  return tokens;
}

/** The places in the pattern that the text so far leads to; the last one is behind its end. */
type Places = Set<number>;

function matches(tokens: readonly Token[], path: string): boolean {
  let places: Places = new Set();
  arrive(tokens, places, 0);
  for (const character of path) {
    const code = character.codePointAt(0) as number;
    const next: Places = new Set();
    for (const place of places) advance(tokens, next, place, code);
    if (next.size === 0) return false;
    places = next;
  }
  return places.has(tokens.length);
}

/** With all places that can be reached from there without a character. */
function arrive(tokens: readonly Token[], places: Places, first: number): void {
  for (let place = first; !places.has(place); place++) {
    places.add(place);
    const kind = tokens[place]?.kind;
    if (kind === "optional") {
      places.add(place + 1);
      place += 1;
    } else if (kind !== "many" && kind !== "all") return;
  }
}

function advance(tokens: readonly Token[], next: Places, place: number, code: number): void {
  const token = tokens[place];
  switch (token?.kind) {
    case "one":
      if (takes(token, code)) arrive(tokens, next, place + 1);
      return;
    case "many":
      if (code !== SLASH) arrive(tokens, next, place);
      return;
    case "all":
      arrive(tokens, next, place);
      return;
    case "directories":
      next.add(place);
      if (code === SLASH) arrive(tokens, next, place + 1);
      return;
    case "optional":
    case undefined:
      return;
  }
}

function takes({ ranges, negated, slash }: Extract<Token, { kind: "one" }>, code: number): boolean {
  if (code === SLASH && !slash) return false;
  return ranges.some(([low, high]) => low <= code && code <= high) !== negated;
}

function readSet(glob: string, start: number): { token: Token; end: number } {
  let index = start + 1;
  const negated = glob[index] === "^";
  if (negated) index += 1;
  const ranges: Range[] = [];
  for (let first = true; first || glob[index] !== "]"; first = false) {
    const low = readSetCharacter(glob, index);
    index = low.end;
    if (glob[index] === "-" && glob[index + 1] !== "]") {
      const high = readSetCharacter(glob, index + 1);
      index = high.end;
      if (high.code < low.code) throw malformed(glob);
      ranges.push([low.code, high.code]);
    } else {
      ranges.push([low.code, low.code]);
    }
  }
  return { token: { kind: "one", ranges, negated, slash: false }, end: index };
}

function readSetCharacter(glob: string, start: number): { code: number; end: number } {
  const index = glob[start] === "\\" ? start + 1 : start;
  const code = glob.codePointAt(index);
  if (code === undefined) throw malformed(glob);
  return { code, end: index + (code > 0xffff ? 2 : 1) };
}

function malformed(glob: string): HoldfastError {
  return new HoldfastError("invalid_argument", `the pattern ${JSON.stringify(glob)} has a "[" that is not ended well`, {
    hint: "Write \\[ for the character itself.",
  });
}

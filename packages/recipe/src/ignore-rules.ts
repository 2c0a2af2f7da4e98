/** What an ignore file says, in the language of `.dockerignore`: the last rule that matches a path or a directory above it wins. */

import { type GlobPattern, globPattern } from "./glob.js";
import { cleanPath } from "./paths.js";

interface Rule {
  readonly keeps: boolean;
  readonly pattern: GlobPattern;
}

/** For each rule, whether it matches the path or a directory above it. */
export type RuleMatches = readonly boolean[];

export class IgnoreRules {
  readonly #rules: readonly Rule[];

  constructor(lines: readonly string[]) {
    this.#rules = lines.flatMap((line) => parseRule(line) ?? []);
  }

  static parse(text: string): IgnoreRules {
    return new IgnoreRules(linesOf(text));
  }

  /** Whether something below an ignored directory may be kept all the same. */
  get canKeepBelow(): boolean {
    return this.#rules.some((rule) => rule.keeps);
  }

  /** `parent` is what this method gave for the directory that the path lies in; absent at the top. */
  match(path: string, parent?: RuleMatches): RuleMatches {
    return this.#rules.map((rule, index) => parent?.[index] === true || rule.pattern.test(path));
  }

  ignores(matches: RuleMatches): boolean {
    let ignored = false;
    for (const [index, rule] of this.#rules.entries()) if (matches[index] === true) ignored = !rule.keeps;
    return ignored;
  }

  /** For a single path, whose parents are looked at as well. */
  ignoresPath(path: string): boolean {
    const names = path.split("/");
    let matches: RuleMatches | undefined;
    for (let count = 1; count <= names.length; count++) matches = this.match(names.slice(0, count).join("/"), matches);
    return matches !== undefined && this.ignores(matches);
  }
}

/** The lines of an ignore file, without what only its bytes say: a byte order mark, line ends. */
export function linesOf(text: string): string[] {
  return text.replace(/^\uFEFF/, "").split(/\r?\n/);
}

function parseRule(line: string): Rule | undefined {
  if (line.startsWith("#")) return undefined;
  const text = line.trim();
  const keeps = text.startsWith("!");
  const path = cleanPath(keeps ? text.slice(1).trim() : text);
  // A rule for the top directory itself, or for what lies above it, says nothing about its content.
  if (path.names.length === 0 || path.up > 0) return undefined;
  return { keeps, pattern: globPattern(path.names.join("/"), { doubleStar: true }) };
}

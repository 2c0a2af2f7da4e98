/**
 * `$X`, `${X}`, `${X:-word}` and `${X:+word}` (and both without the colon) as Dockerfiles know them. A variable may be
 * unknown for now, because only the base image has it: then what is left is a template, to be expanded where it is known.
 */
import { HoldfastError } from "@holdfast/protocol";
import { MAX_TEXT_BYTES } from "./fields.js";

/** What a lookup gives for a variable that may or may not be set. Undefined: it is not. */
export const UNKNOWN: unique symbol = Symbol("unknown");

export type Lookup = (name: string) => string | undefined | typeof UNKNOWN;

type Operator = "" | ":-" | ":+" | "-" | "+";

/** Text, or a variable that has to wait. */
export type Part = string | { readonly name: string; readonly operator: Operator; readonly word: readonly Part[] };

interface Scan {
  readonly text: string;
  readonly escapeCharacter: string;
  /** Quotes group and vanish, as in a Dockerfile. Otherwise they are text, and only `\ $ }` can be escaped. */
  readonly quotes: boolean;
  readonly lookup: Lookup;
  at: number;
  /** How much more text may come out: a short text can ask for a long one many times. */
  leftCharacters: number;
}

const MAX_DEPTH = 32;
const NAME = /[A-Za-z_][A-Za-z0-9_]*|\d+|[@*#?\-$!]/y;
const IDENTIFIER = /^[A-Za-z_]/;

function fault(message: string, hint?: string): HoldfastError {
  return new HoldfastError("invalid_argument", message, { hint });
}

/** A word of a Dockerfile. */
export function expandWord(
  text: string,
  options: { readonly escapeCharacter: string; readonly lookup: Lookup },
): Part[] {
  return readAll({ text, quotes: true, at: 0, leftCharacters: MAX_TEXT_BYTES, ...options });
}

/** A template that `templateOf` has made: a value of an `env` step with `expand`. Variables that are not set are empty. */
export function expandVariables(template: string, lookup: (name: string) => string | undefined): string {
  const scan = { text: template, escapeCharacter: "\\", quotes: false, lookup, at: 0, leftCharacters: MAX_TEXT_BYTES };
  return readAll(scan).join("");
}

/** The text if nothing has to wait, else the name of a variable that has to. */
export function textOf(parts: readonly Part[]): { readonly text: string } | { readonly unknown: string } {
  for (const part of parts) if (typeof part !== "string") return { unknown: part.name };
  return { text: parts.join("") };
}

export function templateOf(parts: readonly Part[]): string {
  return parts
    .map((part) =>
      typeof part === "string"
        ? part.replace(/[\\$}]/g, "\\$&")
        : `\${${part.name}${part.operator}${templateOf(part.word)}}`,
    )
    .join("");
}

function readAll(scan: Scan): Part[] {
  return readUntil(scan, undefined, 0);
}

function readUntil(scan: Scan, stop: string | undefined, depth: number): Part[] {
  if (depth > MAX_DEPTH) throw fault(`variables are nested deeper than ${MAX_DEPTH}`);
  const parts: Part[] = [];
  while (scan.at < scan.text.length) {
    const character = scan.text[scan.at] as string;
    if (character === stop) {
      scan.at += 1;
      return parts;
    }
    if (character === "$") parts.push(...readVariable(scan, depth));
    else if (character === scan.escapeCharacter) parts.push(take(scan, readEscaped(scan)));
    else if (scan.quotes && character === "'") parts.push(take(scan, readSingleQuoted(scan)));
    else if (scan.quotes && character === '"') parts.push(...readDoubleQuoted(scan, depth));
    else {
      scan.at += 1;
      parts.push(take(scan, character));
    }
  }
  if (stop !== undefined) throw fault(`a "${stop}" is missing`);
  return parts;
}

function take(scan: Scan, text: string): string {
  scan.leftCharacters -= text.length;
  if (scan.leftCharacters < 0) throw fault(`the expanded text is longer than ${MAX_TEXT_BYTES} bytes`);
  return text;
}

function readEscaped(scan: Scan): string {
  const next = scan.text[scan.at + 1] ?? "";
  const isSpecial = scan.quotes || ["\\", "$", "}"].includes(next);
  scan.at += isSpecial ? 2 : 1;
  return isSpecial ? next : scan.escapeCharacter;
}

function readSingleQuoted(scan: Scan): string {
  const end = scan.text.indexOf("'", scan.at + 1);
  if (end === -1) throw fault("a single quote is not closed");
  const text = scan.text.slice(scan.at + 1, end);
  scan.at = end + 1;
  return text;
}

function readDoubleQuoted(scan: Scan, depth: number): Part[] {
  const parts: Part[] = [];
  scan.at += 1;
  while (scan.at < scan.text.length) {
    const character = scan.text[scan.at] as string;
    if (character === '"') {
      scan.at += 1;
      return parts;
    }
    if (character === "$") {
      parts.push(...readVariable(scan, depth));
      continue;
    }
    const next = scan.text[scan.at + 1];
    const escaped =
      character === scan.escapeCharacter && (next === '"' || next === "$" || next === scan.escapeCharacter);
    parts.push(take(scan, escaped ? next : character));
    scan.at += escaped ? 2 : 1;
  }
  throw fault("a double quote is not closed");
}

function readName(scan: Scan): string {
  NAME.lastIndex = scan.at;
  const name = NAME.exec(scan.text)?.[0] ?? "";
  scan.at += name.length;
  return name;
}

function readVariable(scan: Scan, depth: number): Part[] {
  scan.at += 1;
  if (scan.text[scan.at] !== "{") {
    const name = readName(scan);
    return name === "" ? [take(scan, "$")] : lookUp(scan, name, "", []);
  }
  scan.at += 1;
  const name = readName(scan);
  if (name === "") throw fault(`\${${scan.text.slice(scan.at, scan.at + 20)} has no name`);
  const operator = /[:]?[-+]|\}/y;
  operator.lastIndex = scan.at;
  const found = operator.exec(scan.text)?.[0];
  if (found === undefined) {
    if (scan.at >= scan.text.length) throw fault('a "}" is missing');
    throw fault(
      `\${${name}${scan.text.slice(scan.at, scan.at + 2)}…} is not supported`,
      `These are: $X, \${X}, \${X:-word} and \${X:+word}, the latter two also without the colon.`,
    );
  }
  scan.at += found.length;
  if (found === "}") return lookUp(scan, name, "", []);
  return lookUp(scan, name, found as Operator, readUntil(scan, "}", depth + 1));
}

function lookUp(scan: Scan, name: string, operator: Operator, word: readonly Part[]): Part[] {
  // Positional and special parameters are a shell's; nobody sets them here.
  const value = IDENTIFIER.test(name) ? scan.lookup(name) : undefined;
  if (value === UNKNOWN) return [{ name, operator, word }];
  const isSet = value !== undefined && (value !== "" || !operator.startsWith(":"));
  if (operator.endsWith("+")) return isSet ? [...word] : [];
  if (operator.endsWith("-") && !isSet) return [...word];
  return [take(scan, value ?? "")];
}

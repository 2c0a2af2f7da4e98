/**
 * JSON as RFC 8785 (JCS) writes it: no spaces, members sorted by the UTF-16 code units of their names, numbers and strings
 * as ECMAScript writes them. Equal values give equal bytes in every language.
 *
 * Strict, because what is dropped or changed in silence would be missing from a hash: only null, booleans, finite numbers,
 * well-formed strings, arrays and plain objects. Members that are undefined count as absent.
 */
import { HoldfastError } from "@holdfast/protocol";

const LONE_SURROGATE = /\p{Surrogate}/u;
const MAX_DEPTH = 64;

export function canonicalJson(value: unknown): string {
  return write(value, "", 0);
}

function write(value: unknown, field: string, depth: number): string {
  if (depth > MAX_DEPTH) throw refusal(field, `is nested deeper than ${MAX_DEPTH}`);
  if (value === null) return "null";
  switch (typeof value) {
    case "boolean":
      return value ? "true" : "false";
    case "number":
      if (!Number.isFinite(value)) throw refusal(field, `is ${value}, which JSON cannot hold`);
      return JSON.stringify(value);
    case "string":
      return writeString(value, field);
    case "object":
      return Array.isArray(value) ? writeArray(value, field, depth) : writeObject(value, field, depth);
    default:
      throw refusal(field, `is of the type ${typeof value}, which JSON cannot hold`);
  }
}

function writeString(text: string, field: string): string {
  if (LONE_SURROGATE.test(text)) throw refusal(field, "holds half of a surrogate pair, which is not Unicode");
  return JSON.stringify(text);
}

function writeArray(items: readonly unknown[], field: string, depth: number): string {
  const written: string[] = [];
  // By index, because iteration methods pass over holes.
  for (let index = 0; index < items.length; index++) {
    written.push(write(items[index], `${field}[${index}]`, depth + 1));
  }
  return `[${written.join(",")}]`;
}

function writeObject(value: object, field: string, depth: number): string {
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) throw refusal(field, "is not a plain object");
  if (Object.getOwnPropertySymbols(value).length > 0) throw refusal(field, "has a member whose name is a symbol");
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  // Without a comparison function, sort() compares UTF-16 code units, which is what the RFC asks for.
  const names = new Map(members);
  const written = [...names.keys()]
    .sort()
    .map((name) => `${writeString(name, field)}:${write(names.get(name), memberOf(field, name), depth + 1)}`);
  return `{${written.join(",")}}`;
}

function memberOf(field: string, name: string): string {
  return field === "" ? name : `${field}.${name}`;
}

function refusal(field: string, what: string): HoldfastError {
  return new HoldfastError("invalid_argument", `${field === "" ? "the value" : field} ${what}`, { details: { field } });
}

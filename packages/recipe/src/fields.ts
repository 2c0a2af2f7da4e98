/** Checks of values that nobody vouches for. Every refusal names the field by its whole path. */
import { HoldfastError } from "@holdfast/protocol";

export const MAX_TEXT_BYTES = 64 * 1024;
const MAX_ITEMS = 10_000;
const SHOWN_CHARACTERS = 80;
const LONE_SURROGATE = /\p{Surrogate}/u;

/** A wrong value, cut short: what is refused may be large. */
export function refuse(field: string, value: unknown, expected: string, hint?: string): HoldfastError {
  return new HoldfastError("invalid_argument", `${field}: expected ${expected}, got ${show(value)}`, {
    details: { field, expected },
    hint,
  });
}

function show(value: unknown): string {
  if (typeof value === "string") {
    const text = JSON.stringify(value.slice(0, SHOWN_CHARACTERS));
    return value.length > SHOWN_CHARACTERS ? `${text}… (${value.length} characters)` : text;
  }
  if (Array.isArray(value)) return value.length === 0 ? "an empty list" : "a list";
  if (typeof value === "object" && value !== null) return "an object";
  if (typeof value === "function" || typeof value === "symbol") return `a ${typeof value}`;
  return String(value);
}

/** The path of a member. */
export function member(field: string, name: string): string {
  return field === "" ? name : `${field}.${name}`;
}

export interface Members {
  get(name: string): unknown;
  /** The member's path, for the refusal. */
  at(name: string): string;
}

/** A plain object with no other members than these. One that is undefined counts as absent. */
export function readObject(value: unknown, field: string, names: readonly string[]): Members {
  const members = plainEntries(value, field);
  for (const [name, content] of members) {
    if (!names.includes(name) && content !== undefined) {
      throw new HoldfastError("invalid_argument", `${member(field, shortened(name))}: there is no such field`, {
        details: { field: member(field, shortened(name)) },
        hint: `The fields are ${names.join(", ")}.`,
      });
    }
  }
  return { get: (name) => members.get(name), at: (name) => member(field, name) };
}

function plainEntries(value: unknown, field: string): Map<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw refuse(nameOf(field), value, "an object");
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) throw refuse(nameOf(field), value, "a plain object");
  return new Map(Object.entries(value));
}

function nameOf(field: string): string {
  return field === "" ? "the value" : field;
}

function shortened(name: string): string {
  return name.length > SHOWN_CHARACTERS ? `${name.slice(0, SHOWN_CHARACTERS)}…` : name;
}

export interface TextRules {
  readonly maxBytes?: number;
  readonly mayBeEmpty?: boolean;
  readonly expected?: string;
  readonly pattern?: RegExp;
  readonly hint?: string;
}

/** Text that a program can be given: Unicode without NUL. */
export function readText(value: unknown, field: string, rules: TextRules = {}): string {
  const expected = rules.expected ?? "a text";
  if (typeof value !== "string") throw refuse(field, value, expected, rules.hint);
  if (value === "" && rules.mayBeEmpty !== true)
    throw refuse(field, value, `${expected} that is not empty`, rules.hint);
  if (value.includes("\0")) throw refuse(field, value, `${expected} without NUL bytes`);
  const maxBytes = rules.maxBytes ?? MAX_TEXT_BYTES;
  if (value.length * 3 > maxBytes && byteLength(value) > maxBytes) {
    throw refuse(field, value, `${expected} of at most ${maxBytes} bytes`);
  }
  if (LONE_SURROGATE.test(value)) throw refuse(field, value, `${expected} without halves of surrogate pairs`);
  if (rules.pattern !== undefined && !rules.pattern.test(value)) throw refuse(field, value, expected, rules.hint);
  return value;
}

export function byteLength(text: string): number {
  return new TextEncoder().encode(text).length;
}

export interface ListRules {
  readonly maxItems?: number;
  readonly mayBeEmpty?: boolean;
}

export function readList<T>(
  value: unknown,
  field: string,
  readItem: (item: unknown, field: string) => T,
  { maxItems = MAX_ITEMS, mayBeEmpty = false }: ListRules = {},
): T[] {
  if (!Array.isArray(value)) throw refuse(field, value, "a list");
  if (value.length > maxItems) throw refuse(field, `${value.length} items`, `at most ${maxItems} items`);
  if (value.length === 0 && !mayBeEmpty) throw refuse(field, value, "at least one item");
  return Array.from(value as unknown[], (item, index) => readItem(item, `${field}[${index}]`));
}

/** Names and texts. Object.fromEntries makes own members of names such as `__proto__`. */
export function readTexts(
  value: unknown,
  field: string,
  readName: (name: string, field: string) => string,
): Record<string, string> {
  const entries = [...plainEntries(value, field)].filter(([, content]) => content !== undefined);
  if (entries.length > MAX_ITEMS) throw refuse(field, `${entries.length} members`, `at most ${MAX_ITEMS} members`);
  return Object.fromEntries(
    entries.map(([name, content]) => [
      readName(name, `${field}: name`),
      readText(content, member(field, shortened(name)), { mayBeEmpty: true }),
    ]),
  );
}

export interface NumberRules {
  readonly min: number;
  readonly max: number;
  readonly unit?: string;
  readonly whole?: boolean;
}

export function readNumber(value: unknown, field: string, { min, max, unit, whole = true }: NumberRules): number {
  const isNumber = typeof value === "number" && Number.isFinite(value) && (!whole || Number.isSafeInteger(value));
  if (!isNumber || value < min || value > max) {
    const what = `${whole ? "a whole number" : "a number"}${unit === undefined ? "" : ` of ${unit}`}`;
    throw refuse(field, value, `${what} from ${min} to ${max}`);
  }
  return value;
}

export function readBoolean(value: unknown, field: string): boolean {
  if (typeof value !== "boolean") throw refuse(field, value, "true or false");
  return value;
}

/** What is undefined stays so, everything else is read. */
export function optional<T>(value: unknown, field: string, read: (value: unknown, field: string) => T): T | undefined {
  return value === undefined ? undefined : read(value, field);
}

/** Without the members that are undefined. */
export function defined<T extends object>(value: T): T {
  return Object.fromEntries(Object.entries(value).filter(([, content]) => content !== undefined)) as T;
}

/** JSON from outside, read strictly: every wrong thing is named by its place. */
import { HoldfastError } from "@holdfast/protocol";

export function imageInvalid(message: string, hint?: string, details?: Record<string, unknown>): HoldfastError {
  return new HoldfastError("image_invalid", message, { hint, details });
}

export function parseJson(bytes: Uint8Array, what: string): unknown {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw imageInvalid(`${what}: it is not UTF-8`);
  }
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw imageInvalid(`${what}: it is not JSON: ${(error as Error).message.slice(0, 200)}`);
  }
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : `a ${typeof value}`;
}

export type JsonObject = Readonly<Record<string, unknown>>;

export function readObject(value: unknown, where: string): JsonObject {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as JsonObject;
  throw imageInvalid(`${where}: expected an object, got ${kindOf(value)}`);
}

/** Go writes `null` for what is absent. */
export function isAbsent(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}

export function readArray(value: unknown, where: string, max: number): readonly unknown[] {
  if (!Array.isArray(value)) throw imageInvalid(`${where}: expected a list, got ${kindOf(value)}`);
  if (value.length > max) throw imageInvalid(`${where}: ${value.length} entries, at most ${max} are allowed`);
  return value;
}

export function readString(value: unknown, where: string): string {
  if (typeof value !== "string") throw imageInvalid(`${where}: expected a string, got ${kindOf(value)}`);
  if (value.includes("\0")) throw imageInvalid(`${where}: it contains a zero byte`);
  return value;
}

export function readOptionalString(value: unknown, where: string): string | undefined {
  return isAbsent(value) ? undefined : readString(value, where);
}

export function readOptionalStrings(value: unknown, where: string, max: number): readonly string[] | undefined {
  if (isAbsent(value)) return undefined;
  return readArray(value, where, max).map((entry, index) => readString(entry, `${where}[${index}]`));
}

export function readOptionalStringMap(
  value: unknown,
  where: string,
  max: number,
): Readonly<Record<string, string>> | undefined {
  if (isAbsent(value)) return undefined;
  const entries = Object.entries(readObject(value, where));
  if (entries.length > max) throw imageInvalid(`${where}: ${entries.length} entries, at most ${max} are allowed`);
  // Object.fromEntries makes plain properties even of `__proto__`.
  return Object.fromEntries(
    entries.map(([key, entry]) => [readString(key, where), readString(entry, `${where}.${key.slice(0, 100)}`)]),
  );
}

export function readSize(value: unknown, where: string): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value;
  throw imageInvalid(`${where}: expected a whole number of bytes, got ${String(value).slice(0, 50)}`);
}

/**
 * Between what the tables hold and what the store gives. What is read is checked: a row that somebody edited by hand or
 * that another version wrote differently is a clear error here, not a strange one far away.
 */
import { type CommandEnding, HoldfastError, type SandboxEnding } from "@holdfast/protocol";
import type { NetworkSettings } from "../store.js";

export function millisFromDate(date: Date): number {
  const millis = date.getTime();
  if (Number.isNaN(millis)) throw new HoldfastError("engine_fault", "an invalid date was given to the database");
  return millis;
}

export function millisOrNull(date: Date | null): number | null {
  return date === null ? null : millisFromDate(date);
}

export function dateOrNull(millis: number | null): Date | null {
  return millis === null ? null : new Date(millis);
}

export function flagOrNull(flag: boolean | null): number | null {
  return flag === null ? null : Number(flag);
}

function damaged(where: string, cause?: unknown): HoldfastError {
  return new HoldfastError("engine_fault", `the database holds a value that makes no sense: ${where}`, {
    details: { where },
    cause,
  });
}

export function memberOf<const Member extends string>(members: readonly Member[], text: string, where: string): Member {
  const member = members.find((candidate) => candidate === text);
  if (member === undefined) throw damaged(`${where} is ${JSON.stringify(text)}`);
  return member;
}

/** The parsed value itself, never a copy: a copy would lose a field named `__proto__`. */
export function parseJson<T>(text: string, isRight: (value: unknown) => value is T, where: string): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw damaged(where, error);
  }
  if (!isRight(value)) throw damaged(where);
  return value;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function isStringRecord(value: unknown): value is Record<string, string> {
  return isObject(value) && Object.values(value).every((member) => typeof member === "string");
}

export function isStringOrNull(value: unknown): value is string | null {
  return value === null || typeof value === "string";
}

export function isNetwork(value: unknown): value is NetworkSettings {
  if (!isObject(value)) return false;
  const { allowInternetAccess, allowPublicTraffic, settings } = value;
  return (
    (allowInternetAccess === null || typeof allowInternetAccess === "boolean") &&
    typeof allowPublicTraffic === "boolean" &&
    (settings === null || isObject(settings))
  );
}

function isEnding(value: unknown): value is Record<string, unknown> {
  return (
    isObject(value) &&
    isObject(value.cause) &&
    typeof value.cause.kind === "string" &&
    isObject(value.usage) &&
    typeof value.message === "string"
  );
}

export function isSandboxEnding(value: unknown): value is SandboxEnding {
  return isEnding(value) && typeof value.sandboxId === "string";
}

export function isCommandEnding(value: unknown): value is CommandEnding {
  return isEnding(value) && typeof value.exitCode === "number" && Array.isArray(value.incidents);
}

/** Checks what came from outside. A refusal names the field, says what was expected and shows what was received. */
import { HoldfastError } from "@holdfast/protocol";
import type { z } from "zod";

const MAX_SHOWN_CHARACTERS = 100;

export function shownValue(value: unknown): string {
  const text = value === undefined ? "nothing" : (JSON.stringify(value) ?? String(value));
  return text.length > MAX_SHOWN_CHARACTERS ? `${text.slice(0, MAX_SHOWN_CHARACTERS)}…` : text;
}

export function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  let current = value;
  for (const step of path) {
    if (typeof current !== "object" || current === null) return undefined;
    current = (current as Record<PropertyKey, unknown>)[step];
  }
  return current;
}

function fieldName(where: string, path: readonly PropertyKey[]): string {
  const inner = path.map((step) => (typeof step === "number" ? `[${step}]` : `.${String(step)}`)).join("");
  return inner === "" ? where : inner.replace(/^\./, "");
}

function wrong(field: string, expected: string, received: unknown): HoldfastError {
  return new HoldfastError("invalid_argument", `${field}: expected ${expected}, got ${shownValue(received)}`, {
    details: { field, expected },
  });
}

function refusal(issue: z.core.$ZodIssue, value: unknown, where: string): HoldfastError {
  if (issue.code === "unrecognized_keys") {
    const path = [...issue.path, ...issue.keys.slice(0, 1)];
    return wrong(fieldName(where, path), "no such field here", valueAt(value, path));
  }
  const received = valueAt(value, issue.path);
  const expected = issue.message.replace(/^Invalid input: expected /, "").replace(/, received .*$/, "");
  return wrong(fieldName(where, issue.path), expected, received);
}

/** `where` names the whole, for when the whole is wrong: "body", "query". */
export function validate<Schema extends z.ZodType>(schema: Schema, value: unknown, where: string): z.output<Schema> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw issue === undefined ? wrong(where, "something else", value) : refusal(issue, value, where);
}

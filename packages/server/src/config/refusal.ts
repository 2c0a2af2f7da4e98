/** What is wrong with a configuration: each value with its name, what was expected, and where it came from. */
import { HoldfastError } from "@holdfast/protocol";
import type { z } from "zod";
import { shownValue, valueAt } from "../http/validate.js";
import { nearestName } from "./nearest.js";
import type { ConfigField } from "./schema.js";
import { type Sources, sourceText } from "./sources.js";

const MAX_SHOWN_CHARACTERS = 100;

export interface Problem {
  readonly field: string;
  readonly message: string;
  readonly hint?: string | undefined;
}

export function refusal(problems: readonly Problem[]): HoldfastError {
  const hints = new Set(problems.flatMap(({ hint }) => (hint === undefined ? [] : [hint])));
  return new HoldfastError("invalid_argument", problems.map(({ message }) => message).join("\n"), {
    hint: hints.size === 0 ? undefined : [...hints].join("\n"),
    details: { field: problems[0]?.field, problems: problems.map(({ field, message }) => ({ field, message })) },
  });
}

export function unknownName(options: {
  readonly name: string;
  readonly where: string;
  readonly known: readonly string[];
}): Problem {
  const { name, where, known } = options;
  const nearest = nearestName(name, known);
  const meant = nearest === undefined ? "" : `; did you mean ${nearest}?`;
  return {
    field: name,
    message: `${where}: there is no setting ${JSON.stringify(name.slice(0, MAX_SHOWN_CHARACTERS))}${meant}`,
    hint: nearest === undefined ? `There are: ${known.join(", ")}.` : undefined,
  };
}

/** A cross-check of several fields speaks for itself; any other message is what was expected. */
function problemFrom(issue: z.core.$ZodIssue, values: unknown, sources: Sources, known: readonly string[]): Problem {
  const field = issue.path.map(String).join(".");
  const from = sourceText(sources[issue.path[0] as ConfigField]);
  if (issue.code === "unrecognized_keys") {
    return unknownName({ name: issue.keys[0] ?? "", where: `${field} (from ${from})`, known });
  }
  if (issue.code === "custom" && typeof issue.params?.hint === "string") {
    const value = valueAt(values, issue.path);
    const given = value === undefined || value === null ? "" : ` (${shownValue(value)}, from ${from})`;
    return { field, message: `${field}${given}: ${issue.message}`, hint: issue.params.hint };
  }
  if (issue.code === "invalid_key") {
    const expected = issue.issues[0]?.message ?? "another name";
    return { field, message: `${field}: expected ${expected}, got ${shownValue(issue.path.at(-1))}, from ${from}` };
  }
  const got = shownValue(valueAt(values, issue.path));
  return { field, message: `${field}: expected ${issue.message}, got ${got}, from ${from}` };
}

export function refusalFrom(
  error: z.core.$ZodError,
  options: { readonly values: unknown; readonly sources: Sources; readonly templateKeys: readonly string[] },
): HoldfastError {
  const { values, sources, templateKeys } = options;
  return refusal(error.issues.map((issue) => problemFrom(issue, values, sources, templateKeys)));
}

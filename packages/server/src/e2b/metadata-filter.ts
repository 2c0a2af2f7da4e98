/**
 * The `metadata` filter of a list. E2B's clients encode each key and value, write the pairs as a form, and encode the form
 * once more as a query parameter: what arrives here is the form, decoded once.
 */
import { invalidArgument } from "@holdfast/protocol";

const EXPECTED = "pairs like user=abc&app=prod, each key and value percent-encoded";

function decodeOne(text: string, whole: string): string {
  try {
    return decodeURIComponent(decodeURIComponent(text.replaceAll("+", " ")));
  } catch {
    throw invalidArgument("metadata", whole.slice(0, 100), EXPECTED);
  }
}

export function parseMetadataFilter(form: string): Readonly<Record<string, string>> {
  const pairs = new Map<string, string>();
  for (const part of form.split("&")) {
    if (part === "") continue;
    const equals = part.indexOf("=");
    const key = decodeOne(equals === -1 ? part : part.slice(0, equals), form);
    if (key === "") throw invalidArgument("metadata", form.slice(0, 100), EXPECTED);
    if (pairs.has(key)) throw invalidArgument("metadata", form.slice(0, 100), "each key once");
    pairs.set(key, equals === -1 ? "" : decodeOne(part.slice(equals + 1), form));
  }
  return Object.fromEntries(pairs);
}

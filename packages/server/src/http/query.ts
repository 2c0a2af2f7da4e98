/** The query of a URL, strictly: what is not percent-encoded UTF-8 is refused, not guessed at. */
import { invalidArgument } from "@holdfast/protocol";

function decodeQueryPart(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    throw invalidArgument("query", text.slice(0, 100), "percent-encoded UTF-8");
  }
}

/** A parameter that comes more than once is a list. */
export function parseQuery(url: string): Record<string, string | string[]> {
  const start = url.indexOf("?");
  const values = new Map<string, string[]>();
  for (const part of start === -1 ? [] : url.slice(start + 1).split("&")) {
    if (part === "") continue;
    const equals = part.indexOf("=");
    const name = decodeQueryPart(equals === -1 ? part : part.slice(0, equals));
    const value = equals === -1 ? "" : decodeQueryPart(part.slice(equals + 1));
    values.set(name, [...(values.get(name) ?? []), value]);
  }
  return Object.fromEntries([...values].map(([name, list]) => [name, list.length === 1 ? (list[0] ?? "") : list]));
}

/** The query of a file request. Strict: a name that was garbled on the way must not become the name of a file. */
import { invalidArgument } from "@holdfast/protocol";

const FIELDS = ["path", "username", "signature", "signature_expiration"] as const;
export type FileQuery = { readonly [K in (typeof FIELDS)[number]]?: string };

function decode(text: string, field: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    // It only ever says that the URI is malformed.
    throw invalidArgument(field, text, "percent-encoded UTF-8");
  }
}

/** Other parameters are left alone: they belong to whoever made the link. */
export function parseFileQuery(url: string): FileQuery {
  const start = url.indexOf("?");
  const query: { -readonly [K in keyof FileQuery]: FileQuery[K] } = {};
  if (start < 0) return query;
  for (const pair of url.slice(start + 1).split("&")) {
    const equals = pair.indexOf("=");
    const name = FIELDS.find((field) => field === (equals < 0 ? pair : pair.slice(0, equals)));
    if (name === undefined) continue;
    if (query[name] !== undefined) throw invalidArgument(name, "several values", "one value");
    const value = decode(equals < 0 ? "" : pair.slice(equals + 1), name);
    if (value.includes("\0")) throw invalidArgument(name, value, "a text without NUL bytes");
    query[name] = value;
  }
  return query;
}

/** Filters and pages of the list of sandboxes, as they stand in a query. */
import { invalidArgument, parseSandboxId, type SandboxId } from "@holdfast/protocol";
import type { SandboxRow } from "../store/store.js";

/** `key=value`, each of them percent-encoded if it has to be: a value may well contain "=". */
export function parseMetadataFilter(pairs: readonly string[]): Record<string, string> {
  const filter: Record<string, string> = Object.create(null);
  for (const pair of pairs) {
    const equals = pair.indexOf("=");
    if (equals < 1) throw invalidArgument("metadata", pair, "key=value, both percent-encoded");
    let key: string;
    let value: string;
    try {
      key = decodeURIComponent(pair.slice(0, equals));
      value = decodeURIComponent(pair.slice(equals + 1));
    } catch {
      // It is malformed, which is all that there is to know about it.
      throw invalidArgument("metadata", pair, "key=value, both percent-encoded");
    }
    if (key in filter && filter[key] !== value) {
      throw invalidArgument("metadata", pair, "each key once: no sandbox has two values for one");
    }
    filter[key] = value;
  }
  return { ...filter };
}

export function cursorAfter(row: Pick<SandboxRow, "createdAt" | "id">): string {
  return Buffer.from(`${row.createdAt.getTime()}.${row.id}`).toString("base64url");
}

export function parseCursor(cursor: string): { readonly createdAt: Date; readonly id: SandboxId } {
  const wrong = () => invalidArgument("cursor", cursor, "the nextCursor of the page before");
  if (cursor.length > 100) throw wrong();
  const match = /^(\d{1,15})\.([a-z0-9]{1,32})$/.exec(Buffer.from(cursor, "base64url").toString("latin1"));
  if (match?.[1] === undefined) throw wrong();
  return { createdAt: new Date(Number(match[1])), id: parseSandboxId(match[2], "cursor") };
}

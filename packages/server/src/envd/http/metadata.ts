/** Metadata of a file: `X-Metadata-<key>` on the way in, an extended attribute on the file. */
import type { IncomingHttpHeaders } from "node:http";
import type { FileEntry } from "@holdfast/engine";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";

const HEADER_PREFIX = "x-metadata-";
const ATTRIBUTE_PREFIX = "user.e2b.";
/** Of all keys and values together. */
const MAX_BYTES = 4096;
/** The kernel's bound for a name, less our prefix. */
const MAX_KEY_BYTES = 255 - ATTRIBUTE_PREFIX.length;

export function attributesFromHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  const attributes: Record<string, string> = {};
  let total = 0;
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(HEADER_PREFIX) || value === undefined) continue;
    const key = name.slice(HEADER_PREFIX.length);
    const text = String(value);
    if (key === "" || key.length > MAX_KEY_BYTES) {
      throw invalidArgument("X-Metadata", key.slice(0, 40), `a key of 1 to ${MAX_KEY_BYTES} characters`);
    }
    if (!/^[\x20-\x7e]*$/.test(text)) throw invalidArgument(`X-Metadata-${key}`, text, "printable ASCII");
    total += key.length + text.length;
    attributes[`${ATTRIBUTE_PREFIX}${key}`] = text;
  }
  if (total > MAX_BYTES) {
    throw new HoldfastError("invalid_argument", `X-Metadata: expected at most ${MAX_BYTES} bytes, got ${total}`, {
      details: { field: "X-Metadata" },
    });
  }
  return attributes;
}

/** Undefined if there is none: an answer without metadata has no such field. */
export function metadataOf(entry: Pick<FileEntry, "attributes">): Record<string, string> | undefined {
  const pairs = Object.entries(entry.attributes)
    .filter(([name]) => name.startsWith(ATTRIBUTE_PREFIX) && name.length > ATTRIBUTE_PREFIX.length)
    .map(([name, value]) => [name.slice(ATTRIBUTE_PREFIX.length), value.toString("utf8")] as const);
  return pairs.length === 0 ? undefined : Object.fromEntries(pairs);
}

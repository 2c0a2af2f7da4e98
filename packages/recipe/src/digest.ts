/** SHA-256 by WebCrypto, which browsers and Node both have. Of files that do not fit into memory see local/file-blob.ts. */
import { canonicalJson } from "./canonical-json.js";
import type { Digest } from "./recipe.js";

const DIGEST = /^sha256:[0-9a-f]{64}$/;

export function isDigest(value: unknown): value is Digest {
  return typeof value === "string" && DIGEST.test(value);
}

export async function digestOfBytes(bytes: Uint8Array): Promise<Digest> {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
  return `sha256:${Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Of the value's canonical JSON as UTF-8. */
export async function digestOfJson(value: unknown): Promise<Digest> {
  return digestOfBytes(new TextEncoder().encode(canonicalJson(value)));
}

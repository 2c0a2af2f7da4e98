import { createHash } from "node:crypto";

const MAX_BYTES = 200;

/**
 * Any text as the name of a file: no two texts get the same one, not even where case does not count, none of them is hidden
 * or leads anywhere else, and none is too long. What is hashed cannot be read back; the file's content has to say it.
 */
export function fileNameOf(text: string): string {
  const encoded = [...Buffer.from(text)]
    .map((byte, index) => {
      const character = String.fromCharCode(byte);
      const isPlain = /[a-z0-9_-]/.test(character) || (character === "." && index > 0);
      return isPlain ? character : `%${byte.toString(16).padStart(2, "0")}`;
    })
    .join("");
  // `%` is always followed by two digits, `@` is never in an encoded text: neither can be taken for the other.
  if (encoded === "") return "@empty";
  return encoded.length <= MAX_BYTES ? encoded : `@${createHash("sha256").update(text).digest("hex")}`;
}

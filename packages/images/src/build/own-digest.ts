import { createHash } from "node:crypto";
import type { Digest } from "@holdfast/recipe";
import type { Owner } from "../types.js";

export function digestOfText(text: string): Digest {
  return `sha256:${createHash("sha256").update(text).digest("hex")}`;
}

/**
 * A content, or the state after a step, as one key has made it. What comes of it also depends on what the build was given:
 * without a network or with little memory some steps do worse and call it a success. The operator's is everybody's.
 */
export function ownDigest(digest: Digest, owner: Owner): Digest {
  return owner === null ? digest : digestOfText(`${digest} of ${owner}`);
}

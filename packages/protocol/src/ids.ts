/** Ids are opaque and checked: they name directories and cgroups, so nothing but lower-case letters and digits passes. */
import { invalidArgument } from "./errors.js";

export type SandboxId = string & { readonly __brand: "SandboxId" };

const SANDBOX_ID = /^[a-z0-9]{1,32}$/;
const ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789";

const RANDOM_LENGTH = 20;

/** The prefix and 20 letters and digits that nobody can guess. */
export function createRandomId(prefix: string): string {
  const length = prefix.length + RANDOM_LENGTH;
  let id = prefix;
  // 252 is the largest multiple of 36 below 256: bytes above it would make some letters likelier than others.
  while (id.length < length) {
    for (const byte of crypto.getRandomValues(new Uint8Array(RANDOM_LENGTH + 4)))
      if (byte < 252 && id.length < length) id += ALPHABET[byte % ALPHABET.length];
  }
  return id;
}

export function createSandboxId(): SandboxId {
  return createRandomId("i") as SandboxId;
}

export function parseSandboxId(text: unknown, field = "sandbox id"): SandboxId {
  if (typeof text !== "string" || !SANDBOX_ID.test(text)) {
    throw invalidArgument(field, text, "1 to 32 lower-case letters and digits");
  }
  return text as SandboxId;
}

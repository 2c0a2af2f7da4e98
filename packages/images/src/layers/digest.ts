import { createHash } from "node:crypto";
import { HoldfastError } from "@holdfast/protocol";
import type { Digest } from "@holdfast/recipe";

const DIGEST = /^sha256:[0-9a-f]{64}$/;

export function isDigest(value: unknown): value is Digest {
  return typeof value === "string" && DIGEST.test(value);
}

/** For digests that somebody else wrote. */
export function parseDigest(value: unknown, where: string): Digest {
  if (isDigest(value)) return value;
  const shown = typeof value === "string" ? JSON.stringify(value.slice(0, 100)) : typeof value;
  throw new HoldfastError("image_invalid", `${where}: expected a sha256 digest, got ${shown}`, {
    hint: "Other algorithms than sha256 are not supported.",
    details: { where },
  });
}

export function digestOf(content: Uint8Array): Digest {
  return `sha256:${createHash("sha256").update(content).digest("hex")}`;
}

/** The 64 hex digits. */
export function hexOf(digest: Digest): string {
  return digest.slice("sha256:".length);
}

/** For messages. */
export function shortDigest(digest: Digest): string {
  return hexOf(digest).slice(0, 12);
}

/** Takes bytes in as they pass; `digest` ends it. */
export class DigestMeter {
  readonly #hash = createHash("sha256");
  sizeBytes = 0;

  add(chunk: Uint8Array): void {
    this.#hash.update(chunk);
    this.sizeBytes += chunk.length;
  }

  digest(): Digest {
    return `sha256:${this.#hash.digest("hex")}`;
  }
}

/** Passes it on and throws at the end if it was not what its digest says. */
export async function* verified(
  content: AsyncIterable<Uint8Array>,
  expected: { readonly digest: Digest; readonly sizeBytes?: number | undefined; readonly what: string },
): AsyncGenerator<Uint8Array> {
  const meter = new DigestMeter();
  for await (const chunk of content) {
    meter.add(chunk);
    yield chunk;
  }
  if (expected.sizeBytes !== undefined && meter.sizeBytes !== expected.sizeBytes) {
    throw new HoldfastError(
      "image_invalid",
      `${expected.what}: expected ${expected.sizeBytes} bytes, got ${meter.sizeBytes}`,
      { hint: "It was cut off or changed on the way; fetch it again." },
    );
  }
  assertDigest(meter.digest(), expected.digest, expected.what);
}

export function assertDigest(actual: Digest, expected: Digest, what: string): void {
  if (actual === expected) return;
  throw new HoldfastError("image_invalid", `${what}: its content is ${actual}, not ${expected} as promised`, {
    hint: "It was cut off or changed on the way; fetch it again.",
    details: { expected, actual },
  });
}

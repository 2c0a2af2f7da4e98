/** Names and texts from outside that are kept and shown again: bounded in all, and real Unicode. */
import type { z } from "zod";

/** The start of a command carries the sandbox's environment beside its own: both must fit. */
export const MAX_ENVIRONMENT_BYTES = 128 * 1024;
/** Every list of sandboxes carries it. */
export const MAX_METADATA_BYTES = 16 * 1024;

/** For `superRefine` of a record. Half a character (a lone surrogate) cannot be written as UTF-8, so it is no text. */
export function boundTexts(maxBytes: number) {
  return (record: Readonly<Record<string, string>>, context: z.RefinementCtx): void => {
    let bytes = 0;
    for (const [name, value] of Object.entries(record)) {
      bytes += Buffer.byteLength(name) + Buffer.byteLength(value);
      if (/\p{Surrogate}/u.test(name + value)) {
        context.addIssue({ code: "custom", path: [name], message: "text without halves of characters" });
      }
    }
    if (bytes > maxBytes) context.addIssue({ code: "custom", message: `at most ${maxBytes} bytes in all` });
  };
}

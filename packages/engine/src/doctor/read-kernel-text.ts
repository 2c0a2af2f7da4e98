import { readFileSync } from "node:fs";

/** The text of a file of /proc or /sys without its last newline; undefined if this kernel does not have it. */
export function readKernelText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8").trimEnd();
  } catch {
    // Absent, or not for us to read: both mean that we cannot know.
    return undefined;
  }
}

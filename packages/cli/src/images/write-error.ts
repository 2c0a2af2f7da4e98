import { HoldfastError } from "@holdfast/protocol";

const HINT = "Free some space there, or write it somewhere else.";

/** What kept a file from being written, in our words; what is none of the file system's stays as it is. */
export function writeError(error: unknown, path: string): unknown {
  const { code, syscall, message } = error as NodeJS.ErrnoException;
  if (error instanceof HoldfastError) {
    // Whether our own images could be fewer is of no interest where the archive goes.
    const isThere = error.code === "no_space" && error.message.startsWith(`writing ${path}: `);
    return isThere ? new HoldfastError(error.code, error.message, { hint: HINT, cause: error }) : error;
  }
  if (syscall === undefined) return error;
  const isFull = code === "ENOSPC" || code === "EDQUOT";
  return new HoldfastError(
    isFull ? "no_space" : code === "ENOENT" ? "file_not_found" : "file_access_denied",
    `writing ${path}: ${message}`,
    { hint: isFull ? HINT : undefined, cause: error },
  );
}

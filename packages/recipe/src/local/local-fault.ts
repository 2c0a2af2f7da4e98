/** What the system says about a local path, for the person who has named it. */
import { HoldfastError } from "@holdfast/protocol";

const SENTENCES: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file or directory",
  ENOTDIR: "a part of the path is not a directory",
  EISDIR: "it is a directory",
  EACCES: "it may not be read",
  EPERM: "it may not be read",
  ELOOP: "it is a link, or links lead in a circle",
  ENAMETOOLONG: "the name is too long",
};

export function localFault(path: string, error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const sentence = SENTENCES[code] ?? (error instanceof Error ? error.message : String(error));
  return new HoldfastError("invalid_argument", `${path}: ${sentence}`, { details: { path, code }, cause: error });
}

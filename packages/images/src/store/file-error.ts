import { HoldfastError } from "@holdfast/protocol";

/** An error of the file system as one of ours: a full disk is not our fault, and has something that can be done about it. */
export function errorFromFile(error: unknown, doing: string): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === "ENOSPC" || code === "EDQUOT" || code === "EFBIG") {
    return new HoldfastError("no_space", `${doing}: no space left (${message})`, {
      cause: error,
      hint: "Free some space; `holdfast image prune` removes what no image and no sandbox needs.",
    });
  }
  return new HoldfastError("engine_fault", `${doing}: ${message}`, { cause: error });
}

export function isMissing(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOENT" || code === "ENOTDIR";
}

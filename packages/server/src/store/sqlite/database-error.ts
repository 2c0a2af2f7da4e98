/** What the database says, in our words. */
import { HoldfastError } from "@holdfast/protocol";

export function sqliteCode(error: unknown): string {
  const cause = error instanceof HoldfastError ? error.cause : error;
  return cause instanceof Error && "code" in cause && typeof cause.code === "string" ? cause.code : "";
}

export function databaseError(path: string, error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const code = sqliteCode(error);
  const said = error instanceof Error ? error.message : String(error);
  const fault = (message: string, hint?: string) =>
    new HoldfastError("engine_fault", message, { hint, details: { path, sqlite: code }, cause: error });
  if (code === "SQLITE_NOTADB") {
    return fault(
      `${path} is not a database`,
      "Something else is in its place. Move it away, or choose another state directory.",
    );
  }
  if (code.startsWith("SQLITE_CORRUPT")) {
    return fault(
      `the database ${path} is damaged: ${said}`,
      "Stop the server and bring back a copy, or move the file away to begin anew; keys are lost then and sandboxes ended.",
    );
  }
  if (code.startsWith("SQLITE_BUSY")) {
    return fault(`another process holds the database ${path}`, "Find it with `fuser`; it may hang.");
  }
  if (code === "SQLITE_FULL") {
    return new HoldfastError("no_space", `there is no room for the database ${path}`, {
      hint: "Free some space in the state directory.",
      details: { path },
      cause: error,
    });
  }
  return fault(`the database ${path}: ${said}`);
}
